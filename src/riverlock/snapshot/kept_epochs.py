"""Which epochs a record keeps: one of each region, and those with rows in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from riverlock.snapshot.format.records import ForkRecord, InFlight

__all__ = ["Keeps", "held_by", "held_for"]


class Keeps(Protocol):
    """A record of a cut: a name, or a fork of several regions."""

    @property
    def regions(self) -> Mapping[str, int]:
        """The epoch of each region."""
        ...

    @property
    def in_flight(self) -> tuple[InFlight, ...]:
        """What the readers of channels had not read."""
        ...


def held_by(record: Keeps) -> Iterator[tuple[str, int]]:
    """Yield the region and number of each epoch that a record keeps."""
    yield from record.regions.items()
    for span in record.in_flight:
        for epoch in range(span.first, span.end):
            yield span.writer, epoch


def held_for(fork: ForkRecord) -> Iterator[tuple[str, int]]:
    """Yield the same of a fork, which may be of a flow with one region."""
    if fork.regions:
        yield from held_by(fork)
    else:
        yield fork.region, fork.epoch
