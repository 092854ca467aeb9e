"""Which regions there are, and which channels join them."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from riverlock.core.errors import InvalidFlowError

__all__ = ["Channel", "Topology"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Rows that leave one region and enter another, or the same one again.

    Attributes:
        is_back: It closes a loop. A region never waits for the marker of a back edge:
            the marker cannot come before the region itself has borne it.
    """

    name: str
    writer: str
    reader: str
    is_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The regions of a flow, or of several flows, and the channels between them."""

    regions: tuple[str, ...]
    channels: tuple[Channel, ...] = ()

    def __post_init__(self) -> None:
        """Refuse channels that lead nowhere, and loops that no back edge closes.

        Raises:
            InvalidFlowError: There is such a channel or loop.
        """
        before: dict[str, set[str]] = {region: set() for region in self.regions}
        for channel in self.channels:
            for region in (channel.writer, channel.reader):
                if region not in before:
                    raise InvalidFlowError(
                        f"channel {channel.name!r}",
                        expected=f"regions of the flow: {', '.join(self.regions)}",
                        found=f"region {region!r}",
                    )
            if not channel.is_back:
                before[channel.reader].add(channel.writer)
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            raise InvalidFlowError(
                "a loop over regions",
                expected="a back edge, made with flow.loop()",
                found=" -> ".join(error.args[1]),
            ) from error

    def inputs(self, region: str) -> tuple[Channel, ...]:
        """Return the channels that a region reads."""
        return tuple(c for c in self.channels if c.reader == region)

    def forward_inputs(self, region: str) -> tuple[Channel, ...]:
        """Return the channels whose markers a region waits for."""
        return tuple(c for c in self.inputs(region) if not c.is_back)

    def is_head(self, region: str) -> bool:
        """Whether markers begin here: no channel but back edges leads to it."""
        return not self.forward_inputs(region)

    def circle_of(self, region: str) -> Topology:
        """Return the regions whose rows come back to this one, and what joins them.

        Without channels: no row that leaves the region comes back.
        """
        mine = {region} | self._behind(region) & {
            each for each in self.regions if region in self._behind(each)
        }
        return Topology(
            regions=tuple(each for each in self.regions if each in mine),
            channels=tuple(
                c for c in self.channels if {c.writer, c.reader}.issubset(mine)
            ),
        )

    def _behind(self, region: str) -> set[str]:
        """Return the regions that rows of a region come to."""
        found: set[str] = set()
        ways = [region]
        while ways:
            at = ways.pop()
            further = {c.reader for c in self.channels if c.writer == at} - found
            found |= further
            ways += further
        return found
