"""Which pieces of an epoch's ranges each task reads, and where their rows belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.splits import Divided, without_spark
from riverlock.core.types import schema_of
from riverlock.engines.tables.rows import Given, Piece
from riverlock.program.graph import Read

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.connectors.channel.rows import Shares
    from riverlock.core.types import Schema
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import InputRange

__all__ = ["Pieces", "bad_columns", "pieces_of", "ranges_of", "share_of", "shares"]

# Pieces of an epoch by source: what a task reads.
Pieces = dict[str, tuple[Piece, ...]]

# As on Spark: positions of several sources must not meet, nor those of two pieces.
_SOURCE_SHIFT, _PIECE_SHIFT = 56, 33


def pieces_of(
    readers: Mapping[str, Reader], ranges: Mapping[str, InputRange], wanted: int
) -> Pieces:
    """Divide what an epoch reads, in the order of each source; runs in the driver.

    Raises:
        InvalidFlowError: Only Spark can read a source.
        SourceError: What a source has is not what was planned.
    """
    found = {}
    for place, (uid, reader) in enumerate(readers.items()):
        each: object = reader
        if not isinstance(each, Divided):
            raise without_spark(f"source {uid!r}", type(reader).__name__)
        span = ranges[uid]
        splits = (
            () if span.start == span.end else each.splits(span.start, span.end, wanted)
        )
        found[uid] = tuple(
            Piece((place << _SOURCE_SHIFT) + (number << _PIECE_SHIFT), split)
            for number, split in enumerate(splits)
        )
    return found


def shares(
    readers: Mapping[str, Reader], ranges: Mapping[str, InputRange], tasks: int
) -> list[Pieces]:
    """Return what each of so many tasks reads of an epoch; picklable.

    A function of the ranges and the number of tasks. Sources with a single piece are
    read by different tasks.

    Raises:
        InvalidFlowError: Only Spark can read a source.
        SourceError: What a source has is not what was planned.
    """
    found: list[Pieces] = [{} for _ in range(tasks)]
    turn = 0
    for uid, pieces in pieces_of(readers, ranges, tasks).items():
        for piece in pieces:
            mine = found[turn % tasks]
            mine[uid] = (*mine.get(uid, ()), piece)
            turn += 1
    return found


def ranges_of(
    flow: Program, readers: Mapping[str, Reader], ranges: Mapping[str, InputRange]
) -> dict[str, Given]:
    """Return what an epoch reads if all of it is read here."""
    bad, pieces = bad_columns(flow), pieces_of(readers, ranges, 1)
    found = {}
    for uid, reader in readers.items():
        source: Any = reader
        found[uid] = Given(source.schema, bad.get(uid), pieces[uid])
    return found


def share_of(
    readers: Mapping[str, Reader], uid: str, shares: Shares, task: int
) -> Given:
    """Return what a task reads of a channel whose rows stand by key group."""
    first = list(readers).index(uid) << _SOURCE_SHIFT
    source: Any = readers[uid]
    return Given(source.schema, None, (Piece(first, _Share(shares, task)),))


@dataclass(frozen=True)
class _Share:
    shares: Shares
    task: int

    def table(self) -> pa.Table:
        return self.shares.table(self.task)


def bad_columns(flow: Program) -> dict[str, Schema]:
    """Return the columns of bad rows of each source that may have some."""
    found = {}
    for read in flow.find(Read):
        columns = getattr(read.source, "bad_columns", None)
        if columns is not None:
            found[read.uid] = schema_of(columns)
    return found
