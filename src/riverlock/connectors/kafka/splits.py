"""Pieces of Kafka topics, read and decoded in any process that has the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.connectors.kafka.columns import COLUMNS
from riverlock.core.errors import SourceError
from riverlock.core.types import Schema, schema_of

if TYPE_CHECKING:
    from riverlock.connectors.kafka.ranges import RecordReader, Span

__all__ = ["KafkaSplit", "RecordShape"]

_ARROW = schema_of(COLUMNS).to_arrow()
_BAD = ("topic", "partition", "offset")


@dataclass(frozen=True, kw_only=True)
class RecordShape:
    """What becomes of records.

    Attributes:
        columns: Those of the stream.
        payload: Those of a value; None: values stay as they are.
        prefix: Of the names of the record's own columns.
        decoder: Of values: from bytes to a column of structs, and what is wrong.
        reports: Whether bad values are kept apart; otherwise they end the flow.
    """

    columns: Schema
    payload: Schema | None
    prefix: str
    decoder: Any
    reports: bool

    def parted(self, records: pa.Table, uid: str) -> tuple[pa.Table, pa.Table]:
        """Return the rows of the stream, and those of ``.bad``.

        Raises:
            SourceError: A value is bad, and must not be.
        """
        own = {f"{self.prefix}{name}": records[name] for name in _ARROW.names}
        if self.payload is None:
            return _as(self.columns, own), self._bad(records.slice(0, 0))
        found, wrong = self.decoder.decoded(records["value"].to_pylist())
        is_bad = pa.array([why is not None for why in wrong], pa.bool_())
        if not self.reports:
            _refuse(records, wrong, uid)
        body = {f.name: found.field(n) for n, f in enumerate(self.payload.fields)}
        kept = {n: c for n, c in own.items() if n != f"{self.prefix}value"}
        rows = _as(self.columns, {**kept, **body})
        return rows.filter(pc.invert(is_bad)), self._bad(records.filter(is_bad))

    @staticmethod
    def _bad(records: pa.Table) -> pa.Table:
        named = {name: records[name] for name in _BAD}
        return pa.table({**named, "record": records["value"]})


def _as(columns: Schema, found: dict[str, Any]) -> pa.Table:
    arrow = columns.to_arrow()
    return pa.table([found[name] for name in arrow.names], schema=arrow)


def _refuse(records: pa.Table, wrong: list[str | None], uid: str) -> None:
    for place, why in enumerate(wrong):
        if why is not None:
            topic, part, offset = (records[n][place].as_py() for n in _BAD)
            raise SourceError(
                uid,
                what=f"the value of {topic}-{part} at offset {offset} is bad: {why}",
                hint="bad_rows='report' keeps such records out of the stream",
            )


@dataclass(frozen=True)
class KafkaSplit:
    """Offsets of a partition."""

    reader: RecordReader
    span: Span
    shape: RecordShape

    def table(self) -> pa.Table:
        """Read the rows of the stream.

        Raises:
            SourceError: Records are gone, or one is bad and must not be.
            SourceUnavailableError: The cluster does not answer.
        """
        return self.parted()[0]

    def parted(self) -> tuple[pa.Table, pa.Table]:
        """Read the rows of the stream, and those of ``.bad``.

        Raises:
            SourceError: Records are gone, or one is bad and must not be.
            SourceUnavailableError: The cluster does not answer.
        """
        batches = list(self.reader.read(self.span))
        records = pa.Table.from_batches(batches, schema=_ARROW)
        return self.shape.parted(records, self.reader.uid)
