"""The guarantees of regions, and what follows from them for each sink.

The weakest region on the way from the sources to a sink says what the sink is promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.connectors.channel.ends import ChannelSink, ChannelSource, LoopSource
from riverlock.core.errors import InvalidFlowError
from riverlock.core.guarantees import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    GUARANTEES,
    Guarantee,
)
from riverlock.core.suggestions import did_you_mean
from riverlock.program.graph import Read, upstream
from riverlock.program.regions import region_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from riverlock.program.graph import Write
    from riverlock.program.program import Program

__all__ = [
    "NEITHER",
    "Way",
    "check_guarantee",
    "declare_guarantee",
    "way_to_region",
    "ways_to_sinks",
]

NEITHER = "neither: rows may be missing, and may repeat"


def check_guarantee(what: str, guarantee: object) -> None:
    """Refuse what is none of the three.

    Raises:
        InvalidFlowError: It is not.
    """
    if guarantee not in GUARANTEES:
        raise InvalidFlowError(
            what,
            expected=" or ".join(map(repr, GUARANTEES)),
            found=repr(guarantee),
            hint=did_you_mean(str(guarantee).replace("_", " "), GUARANTEES),
        )


def declare_guarantee(
    program: Program, region: str, guarantee: Guarantee | None
) -> None:
    """Take what a region is entered with; None: what it has been entered with before.

    Raises:
        InvalidFlowError: It was entered with another guarantee, or there is no such.
    """
    if guarantee is None:
        return
    check_guarantee(f"region({region!r}, guarantee=)", guarantee)
    known = program.guarantees.setdefault(region, guarantee)
    if known != guarantee:
        raise InvalidFlowError(
            f"region {region!r}",
            expected=f"one guarantee: {known!r}, which it was entered with before",
            found=repr(guarantee),
            hint=f"write .region({region!r}, guarantee={known!r}) wherever it is"
            " entered, or guarantee= in one place only",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The regions on the way to a sink.

    Attributes:
        region: The one that the sink is in.
        guarantee: What it promises.
        before: Those that its rows come from, nearest first, with what they promise.
    """

    region: str
    guarantee: str
    before: Sequence[tuple[str, str]] = ()

    @property
    def promise(self) -> str:
        """What the sink is promised: the weakest of all.

        Of a region that may repeat rows, behind one that may leave some out: neither.
        """
        is_repeating = self.guarantee == AT_LEAST_ONCE
        if is_repeating and any(each == AT_MOST_ONCE for _, each in self.before):
            return NEITHER
        return max((self.guarantee, *(each for _, each in self.before)), key=_weakness)

    def __str__(self) -> str:
        """Return it in words."""
        is_own = self.promise == self.guarantee
        own = "" if is_own else f", itself {self.guarantee}"
        said = f"{self.promise} (region {self.region}{own})"
        if not self.before:
            return said
        return f"{said}, from " + ", ".join(f"{r} ({g})" for r, g in self.before)


def _weakness(guarantee: str) -> int:
    known: tuple[str, ...] = GUARANTEES
    return known.index(guarantee) if guarantee in known else len(known)


def way_to_region(
    region: str, guarantees: Mapping[str, str], channels: Iterable[tuple[str, str]]
) -> Way:
    """Return the way to all sinks of a region, if more than a store tells is unknown.

    Args:
        region: The region.
        guarantees: What each region promises.
        channels: Which region each channel comes from, and which one reads it.
    """
    known, found = list(channels), [region]
    for reached in found:  # grows while we look
        found += [w for w, r in known if r == reached and w not in found]
    return Way(
        region=region,
        guarantee=guarantees.get(region, EXACTLY_ONCE),
        before=tuple((each, guarantees.get(each, EXACTLY_ONCE)) for each in found[1:]),
    )


def ways_to_sinks(program: Program) -> dict[str, Way]:
    """Return the way to each sink of a whole flow, channels left out, by uid."""
    channels = {w.uid: w for w in program.writes if isinstance(w.sink, ChannelSink)}
    return {
        write.uid: _way(program, write, channels)
        for write in program.writes
        if write.uid not in channels
    }


def _way(program: Program, write: Write, channels: Mapping[str, Write]) -> Way:
    """Follow the channels back; one that leads back to where it came from, once."""
    own, seen = region_of(write), dict[str, None]()
    ways, regions = [write], dict[str, None]()
    while ways:
        for name in _channels_to(ways.pop(0)):
            if name in channels and name not in seen:
                seen[name] = None
                ways.append(channels[name])
                regions[region_of(channels[name])] = None
    return Way(
        region=own,
        guarantee=program.guarantees.get(own, EXACTLY_ONCE),
        before=tuple(
            (region, program.guarantees.get(region, EXACTLY_ONCE))
            for region in regions
            if region != own
        ),
    )


def _channels_to(write: Write) -> list[str]:
    """Return the channels whose rows reach an output within its region."""
    reads = [node for node in upstream(write.input) if isinstance(node, Read)]
    sources = [read.source for read in reads]
    return [s.name for s in sources if isinstance(s, ChannelSource | LoopSource)]
