"""What a region in a loop asks before it plans an epoch, ends, or goes on for ever.

The rules are in ``coordinator/circle``; here is where what they go by comes from. The
regions of a circle share one ``SharedCircle``, a thread each; where they run in
processes of their own, each has an ``ApartCircle``.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from riverlock.connectors.base.source_reader import Following
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.coordinator.circle import Circle, Place, Rest
from riverlock.core.errors import EndlessLoopError, RiverlockError
from riverlock.core.times import END_US

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.cuts.topology import Topology
    from riverlock.program.loops import Loop
    from riverlock.snapshot.format.records import InputRange, Manifest

__all__ = ["Shared", "SharedCircle", "Turning", "circles_of"]


class Shared(Protocol):
    """A circle as a region that is in it sees it; from any thread."""

    @property
    def topology(self) -> Topology:
        """The regions, and the channels between them."""
        ...

    @property
    def is_apart(self) -> bool:
        """Whether other regions of it run in processes of their own."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether all that enters the circle has ended, and all loops are empty."""
        ...

    def is_final(self) -> bool:
        """Whether all its regions may stop."""
        ...

    def works(
        self, region: str, place: Place, *, is_fresh: bool, moves_rows: bool
    ) -> int:
        """Take it that a region plans an epoch; return how often rows went round."""
        ...

    def rests(self, region: str, place: Place, rest: Rest) -> None:
        """Take it that a region has nothing to do."""
        ...


@dataclass(frozen=True)
class SharedCircle:
    """The regions of one circle, as the threads that run them see it."""

    circle: Circle
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_apart = False

    @classmethod
    def of(cls, topology: Topology) -> SharedCircle:
        """Return that of regions that know nothing of each other yet."""
        return cls(Circle(topology))

    @property
    def topology(self) -> Topology:
        """The regions, and the channels between them."""
        return self.circle.topology

    @property
    def has_ended(self) -> bool:
        """Whether all that enters the circle has ended, and all loops are empty."""
        with self.lock:
            return self.circle.has_ended

    def is_final(self) -> bool:
        """Whether all its regions may stop."""
        with self.lock:
            return self.circle.is_final

    def works(
        self, region: str, place: Place, *, is_fresh: bool, moves_rows: bool
    ) -> int:
        """Take it that a region plans an epoch; return how often rows went round."""
        with self.lock:
            self.circle.works(region, place, is_fresh=is_fresh, moves_rows=moves_rows)
            return self.circle.rounds

    def rests(self, region: str, place: Place, rest: Rest) -> None:
        """Take it that a region has nothing to do."""
        with self.lock:
            self.circle.rests(region, place, rest)


@dataclass(frozen=True)
class Turning:
    """A region's part in a circle.

    Attributes:
        region: The region.
        shared: The circle.
        readers: The region's sources, by uid.
        loops: The loops that enter the region, by the uid of what reads them.
    """

    region: str
    shared: Shared
    readers: Mapping[str, Reader]
    loops: Mapping[str, Loop]

    @property
    def inner(self) -> dict[str, ChannelReader]:
        """The channels of the circle that the region reads, by uid of the source."""
        mine = {c.name for c in self.shared.topology.inputs(self.region)}
        return {
            uid: reader
            for uid, reader in self.readers.items()
            if isinstance(reader, ChannelReader) and reader.channel in mine
        }

    @property
    def outer(self) -> dict[str, Reader]:
        """All other sources of the region."""
        return {u: r for u, r in self.readers.items() if u not in self.inner}

    @property
    def has_ended(self) -> bool:
        """Whether all that enters the circle has ended, and all loops are empty."""
        return self.shared.has_ended

    @property
    def is_apart(self) -> bool:
        """Whether other regions of it run in processes of their own."""
        return self.shared.is_apart

    def works(self, parent: Manifest | None, inputs: Mapping[str, InputRange]) -> None:
        """Take it that an epoch with these inputs is planned, or held back.

        Raises:
            EndlessLoopError: Rows of a loop have come round too often.
        """
        inner = self.inner
        rounds = self.shared.works(
            self.region,
            self._place(parent, inputs),
            is_fresh=any(_has_rows(inputs[uid]) for uid in self.outer),
            moves_rows=any(_has_rows(inputs[uid]) for uid in inner),
        )
        for uid, loop in self.loops.items():
            if loop.max_rounds is None or not _has_rows(inputs[uid]):
                continue
            if rounds >= loop.max_rounds:
                raise EndlessLoopError(
                    loop.uid,
                    operator=loop.feeder,
                    region=self.region,
                    rows=_waiting(inner[uid], inputs[uid].start),
                    max_rounds=loop.max_rounds,
                )

    def rests(
        self,
        parent: Manifest | None,
        inputs: Mapping[str, InputRange],
        latest: Mapping[str, Any],
        *,
        knows_end: bool,
    ) -> None:
        """Take it that the region has nothing to do.

        Args:
            parent: Its newest epoch.
            inputs: What the next one would read, which is nothing.
            latest: How far each source reaches: it may have rows that must wait.
            knows_end: Whether this is so although the circle has ended.
        """
        if any(span.end != latest[uid] for uid, span in inputs.items()):
            self.works(parent, inputs)
            return
        outer = self.outer
        followed = [r for r in outer.values() if isinstance(r, Following)]
        rest = Rest(
            seen={r.channel: r.end for r in self.inner.values()},
            is_final=all(reader.is_final for reader in followed),
            has_ended=all(
                _has_ended(reader, inputs[uid], latest[uid])
                for uid, reader in outer.items()
            ),
            knows_end=knows_end,
        )
        self.shared.rests(self.region, self._place(parent, inputs), rest)

    def _place(
        self, parent: Manifest | None, inputs: Mapping[str, InputRange]
    ) -> Place:
        return Place(
            epoch=-1 if parent is None else parent.epoch,
            reset=0 if parent is None else parent.reset,
            read={
                reader.channel: reader.position(inputs[uid].start)
                for uid, reader in self.inner.items()
            },
        )

    def rows_in_loops(self, manifest: Manifest) -> dict[str, int]:
        """Return how many rows wait in each loop after an epoch, as far as is known."""
        found = {}
        for uid, loop in self.loops.items():
            with suppress(RiverlockError):  # the store will tell the next plan
                found[loop.uid] = _waiting(self.inner[uid], manifest.inputs[uid].end)
        return found


def _waiting(reader: ChannelReader, start: Any) -> int:
    return reader.rows_between(start, reader.latest(start))


def _has_rows(span: InputRange) -> bool:
    return span.start != span.end and span.rows != 0


def _has_ended(reader: Reader, span: InputRange, latest: Any) -> bool:
    if isinstance(reader, Following):
        return reader.watermark_us(span.start, span.end) == END_US
    return reader.has_ended(span.start, latest)


def circles_of(topology: Topology) -> dict[str, SharedCircle]:
    """Return the circle of each region that has one: all that run in this process."""
    found: dict[str, SharedCircle] = {}
    for region in topology.regions:
        circle = topology.circle_of(region)
        if circle.channels and region not in found:
            found |= dict.fromkeys(circle.regions, SharedCircle.of(circle))
    return found
