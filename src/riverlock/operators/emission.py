"""Rows that an operator gives: each output, with event times, as they are stored."""

from __future__ import annotations

from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from riverlock.core.values.record import Record
from riverlock.operators.shipped import MAIN
from riverlock.state.columns.python_rows import (
    RowError,
    as_tuple,
    emitted_table,
    freezer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from riverlock.core.types import Schema
    from riverlock.operators.keyed.context import Context

__all__ = ["Emission"]

_ROWS = (GeneratorType, list)


def _no_output(row: Any) -> Any:
    message = f"the process declares no output, but gave {row!r:.200}"
    raise RowError(message)


def _check_rows(rows: Any) -> None:
    if isinstance(rows, str | bytes | dict | Record):
        kind = type(rows).__name__
        message = f"yield the row, or return a list of rows, instead of a {kind}"
        raise RowError(message)


class Emission:
    """Takes the rows of one task and epoch."""

    def __init__(
        self, outputs: Mapping[str, Schema], ctx: Context, *, checks: bool
    ) -> None:
        """Begin without rows.

        Args:
            outputs: Columns of the outputs.
            ctx: Whose event time rows have; side outputs are reached through it.
            checks: Whether each row is looked at when it is given.
        """
        self.rows: dict[str, list[tuple[Any, int | None]]] = {n: [] for n in outputs}
        self.main = self.rows.get(MAIN, [])
        self._outputs, self._ctx = outputs, ctx
        freezers = {n: freezer(s, checks=checks) for n, s in outputs.items()}
        whole = {
            name: freeze or partial(as_tuple, names=outputs[name].names)
            for name, freeze in freezers.items()
        }
        self._as_row = whole.get(MAIN, _no_output)
        # How wide tuples of the main output are that pass as they are, if any do.
        is_plain = MAIN in outputs and freezers[MAIN] is None
        self.plain_width = len(outputs[MAIN].names) if is_plain else None
        self.give = self._giver()
        ctx._main, ctx._freezers = self.main, whole
        ctx._emitted = {n: r for n, r in self.rows.items() if n != MAIN}

    def _giver(self) -> Callable[[Iterable[Any]], None]:
        """Return what takes the rows of a record: called for each, it has no self."""
        ctx, main, width, as_row = self._ctx, self.main, self.plain_width, self._as_row

        def give(rows: Iterable[Any]) -> None:
            if type(rows) not in _ROWS:
                _check_rows(rows)
            at = ctx._time_us
            if width is None:
                main.extend([(as_row(r), at) for r in rows])
                return
            main.extend(
                [
                    (r, at) if type(r) is tuple and len(r) == width else (as_row(r), at)
                    for r in rows
                ]
            )

        return give

    def emit(self, rows: Iterable[Any] | None) -> None:
        """Take rows of a step, if it gave any, each with the time that is then."""
        if rows is not None:
            _check_rows(rows)
            ctx, as_row = self._ctx, self._as_row
            # Built-in operators may move the time on from row to row.
            self.main.extend([(as_row(r), ctx._time_us) for r in rows])

    def give_one(self, row: Any, at_us: int | None) -> None:
        """Take a row of a given time."""
        self.main.append((self._as_row(row), at_us))

    def give_all(self, rows: Iterable[Any] | None, at_us: int | None) -> None:
        """Take rows of a given time, if there are any."""
        if rows is not None:
            self._ctx._time_us = at_us
            self.give(rows)

    def table(self, name: str) -> pa.Table:
        """Return the rows of an output, with their event time.

        Raises:
            RowError: A row does not fit the declared columns.
        """
        return emitted_table(self.rows[name], self._outputs[name])

    def marks(self) -> list[int]:
        """Return a way back to this moment."""
        return [len(rows) for rows in self.rows.values()]

    def rewind(self, marks: list[int]) -> None:
        """Forget what was given since."""
        for rows, mark in zip(self.rows.values(), marks, strict=True):
            del rows[mark:]
