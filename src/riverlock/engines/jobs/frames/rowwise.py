"""Python functions over records, without state: ``map``, ``flat_map``, ``filter``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from riverlock.core.hidden_columns import HIDDEN
from riverlock.core.types import Schema, schema_of
from riverlock.operators.boundary import shown, user_error, user_line
from riverlock.operators.shipped import DEAD, DEAD_SCHEMA, MAIN
from riverlock.spark.remote import RemoteError
from riverlock.spark.structs import struct_of
from riverlock.state.columns.python_rows import (
    RowError,
    as_tuple,
    freezer,
    records,
    rows_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from riverlock.program.graph import RowWise

__all__ = ["RowFunction", "row_function", "row_wise"]


class _Given(NamedTuple):
    """A record, its place in the batch, and what the function made of it."""

    place: int
    record: Any
    rows: list[Any]


class _Letter(NamedTuple):
    place: int
    row: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class RowFunction:
    """What runs in the workers: a call gives results, ``split`` dead letters too."""

    uid: str
    operation: str
    function: Callable[[Any], Any]
    input: Schema
    output: Schema
    hidden: tuple[str, ...]
    keeps_going: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the results."""
        for batch in batches:
            yield from self.split(batch)[MAIN].to_batches()

    def split(self, batch: pa.RecordBatch) -> dict[str, pa.Table]:
        """Return the results of a batch, and its dead letters, by output."""
        table = pa.Table.from_batches([batch])
        given: list[_Given] = []
        letters: list[_Letter] = []
        for place, record in enumerate(records(table, self.input)):
            try:
                given.append(_Given(place, record, self._rows(record)))
            except Exception as error:  # noqa: BLE001 - user code
                letters.append(self._letter(error, place, record))
        made, places = self._made(table, given, letters)
        found = {MAIN: self._with_hidden(made, table, places)}
        if letters:
            letters.sort()
            dead = rows_table([each.row for each in letters], schema_of(DEAD_SCHEMA))
            places = [each.place for each in letters]
            found[DEAD] = self._with_hidden(dead, table, places)
        return found

    def _rows(self, record: Any) -> list[Any]:
        result = self.function(record)
        match self.operation:
            case "map":
                return [self._frozen(result)]
            case "filter":
                return [record] if result else []
            case _:
                rows = () if result is None else result
                return [self._frozen(row) for row in rows]

    @cached_property
    def _frozen(self) -> Callable[[Any], tuple[Any, ...]]:
        """What a row is turned into, so that it can be converted more than once.

        An iterator would give its values to the first conversion only.
        """
        names = self.output.names
        return freezer(self.output, checks=False) or (lambda row: as_tuple(row, names))

    def _made(
        self, table: pa.Table, given: list[_Given], letters: list[_Letter]
    ) -> tuple[pa.Table, list[int]]:
        """Return the rows that the function gave, and the place each came from."""
        if self.operation == "filter":
            places = [each.place for each in given if each.rows]
            kept = table.select(list(self.input.names))
            return kept.take(pa.array(places, "int64")), places
        try:
            made = self._table(given)
        except RowError:
            # Slower, but tells which of them it was.
            given = [each for each in given if self._fits(each, letters)]
            made = self._table(given)
        return made, [each.place for each in given for _ in each.rows]

    def _table(self, given: list[_Given]) -> pa.Table:
        return rows_table([row for each in given for row in each.rows], self.output)

    def _fits(self, given: _Given, letters: list[_Letter]) -> bool:
        """Tell whether all rows of a record fit; if not, it is a dead letter."""
        try:
            self._table([given])
        except RowError as error:
            letters.append(self._letter(error, given.place, given.record))
            return False
        return True

    def _with_hidden(
        self, made: pa.Table, table: pa.Table, places: list[int]
    ) -> pa.Table:
        kept = table.select(list(self.hidden)).take(pa.array(places, "int64"))
        for name in self.hidden:
            made = made.append_column(name, kept[name])
        return made

    def _letter(self, error: Exception, place: int, record: Any) -> _Letter:
        """Return a dead letter.

        Raises:
            RemoteError: There are none: the first error ends the epoch.
        """
        if not self.keeps_going:
            found = user_error(
                error, operator=self.uid, where=self.operation, record=record
            )
            raise RemoteError(found) from error
        text = f"{type(error).__name__}: {error}"
        line = user_line(error.__traceback__)
        return _Letter(place, (self.uid, None, None, text, line, shown(record)))


def row_function(frame: DataFrame, node: RowWise) -> RowFunction:
    """Return what applies the function of a node to the rows of a frame."""
    plain = [f for f in frame.schema.fields if f.name not in HIDDEN]
    columns = schema_of(StructType(plain))
    return RowFunction(
        uid=node.uid,
        operation=node.operation,
        function=node.function,
        input=columns,
        output=node.output or columns,
        hidden=tuple(f.name for f in frame.schema.fields if f.name in HIDDEN),
        keeps_going=node.on_error is not None,
    )


def row_wise(frame: DataFrame, node: RowWise) -> DataFrame:
    """Return a frame to which a Python function was applied."""
    function = row_function(frame, node)
    hidden = [f for f in frame.schema.fields if f.name in HIDDEN]
    struct = StructType(struct_of(function.output).fields + hidden)
    return frame.mapInArrow(function, struct)
