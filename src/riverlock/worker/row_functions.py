"""Python functions over records, without state: ``map``, ``flat_map``, ``filter``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from riverlock.core.types import Schema, schema_of
from riverlock.core.user_lines import function_line, raising_line
from riverlock.operators.boundary import shown, user_error
from riverlock.operators.shipped import DEAD, DEAD_SCHEMA, MAIN
from riverlock.state.columns.python_rows import (
    RowError,
    as_tuple,
    check_rows,
    freezer,
    records,
    rows_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.program.graph import RowWise

__all__ = ["RowFunction", "row_function"]


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
    """What runs in the workers: ``split`` gives results and dead letters."""

    uid: str
    operation: str
    function: Callable[[Any], Any]
    input: Schema
    output: Schema
    hidden: tuple[str, ...]
    keeps_going: bool

    def split(self, batch: pa.RecordBatch) -> dict[str, pa.Table]:
        """Return the results of a batch, and its dead letters, by output.

        Raises:
            RiverlockError: There are no dead letters: the first error ends the epoch.
        """
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
                check_rows(rows)
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
        if not self.keeps_going:
            raise user_error(
                error,
                operator=self.uid,
                where=self.operation,
                record=record,
                function=self.function,
            ) from error
        text = f"{type(error).__name__}: {error}"
        line = raising_line(error.__traceback__) or function_line(self.function)
        return _Letter(place, (self.uid, None, None, text, line, shown(record)))


def row_function(
    node: RowWise, columns: Schema, hidden: tuple[str, ...]
) -> RowFunction:
    """Return what applies the function of a node to rows of these columns."""
    return RowFunction(
        uid=node.uid,
        operation=node.operation,
        function=node.function,
        input=columns,
        output=node.output or columns,
        hidden=hidden,
        keeps_going=node.on_error is not None,
    )
