"""Python functions over records, without state: ``map``, ``flat_map``, ``filter``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from riverlock.core.types import Schema, schema_of
from riverlock.runtime.boundary import shown, user_error, user_line
from riverlock.runtime.columns import HIDDEN, RowError, records, rows_table
from riverlock.runtime.program import DEAD_SCHEMA
from riverlock.spark.remote import RemoteError
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from riverlock.flow.graph import RowWise

__all__ = ["row_wise"]


@dataclass(frozen=True, kw_only=True)
class _RowFunction:
    """What runs in the workers."""

    uid: str
    operation: str
    function: Callable[[Any], Any]
    input: Schema
    output: Schema
    hidden: tuple[str, ...]
    dead: bool
    keeps_going: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._batch(pa.Table.from_batches([batch])).to_batches()

    def _batch(self, table: pa.Table) -> pa.Table:
        rows: list[Any] = []
        places: list[int] = []
        dead: list[tuple[Any, ...]] = []
        dead_places: list[int] = []
        for place, record in enumerate(records(table, self.input)):
            try:
                found = self._rows(record)
            except Exception as error:
                if not self.keeps_going:
                    raise self._error(error, record) from error
                dead.append(self._letter(error, record))
                dead_places.append(place)
                continue
            rows.extend(found)
            places.extend([place] * len(found))
        if self.dead:
            made, places = rows_table(dead, schema_of(DEAD_SCHEMA)), dead_places
        elif self.operation == "filter":
            made = table.select(list(self.input.names)).take(pa.array(places, "int64"))
        else:
            made = self._table(rows)
        kept = table.select(list(self.hidden)).take(pa.array(places, "int64"))
        for name in self.hidden:
            made = made.append_column(name, kept[name])
        return made

    def _rows(self, record: Any) -> list[Any]:
        result = self.function(record)
        match self.operation:
            case "map":
                return [result]
            case "filter":
                return [record] if result else []
            case _:
                return [] if result is None else list(result)

    def _table(self, rows: list[Any]) -> pa.Table:
        try:
            return rows_table(rows, self.output)
        except RowError as error:
            raise self._error(error, None) from error

    def _error(self, error: Exception, record: Any) -> RemoteError:
        return RemoteError(
            user_error(error, operator=self.uid, where=self.operation, record=record)
        )

    def _letter(self, error: Exception, record: Any) -> tuple[Any, ...]:
        text = f"{type(error).__name__}: {error}"
        line = user_line(error.__traceback__)
        return (self.uid, None, None, text, line, shown(record))


def row_wise(frame: DataFrame, node: RowWise, *, dead: bool) -> DataFrame:
    """Return a frame to which a Python function was applied (or its dead letters)."""
    hidden = [f for f in frame.schema.fields if f.name in HIDDEN]
    plain = [f for f in frame.schema.fields if f.name not in HIDDEN]
    columns = schema_of(StructType(plain))
    output = schema_of(DEAD_SCHEMA) if dead else node.output or columns
    function = _RowFunction(
        uid=node.uid,
        operation=node.operation,
        function=node.function,
        input=columns,
        output=output,
        hidden=tuple(f.name for f in hidden),
        dead=dead,
        keeps_going=node.on_error is not None,
    )
    struct = StructType(struct_of(output).fields + hidden)
    return frame.mapInArrow(function, struct)
