"""Rows that an operator emits: each output, with event times, as they are stored."""

from __future__ import annotations

from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from riverlock.core.user_lines import generator_line
from riverlock.operators.shipped import MAIN
from riverlock.state.columns.python_rows import (
    RowError,
    as_tuple,
    check_rows,
    emitted_table,
    freezer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from riverlock.core.types import Schema
    from riverlock.operators.keyed.context import OperatorContext

__all__ = ["Emission"]

_ROWS = (GeneratorType, list)


def _no_output(row: Any) -> Any:
    message = (
        f"the process declares no output, but emitted {row!r:.200}; write"
        ' output = "user string, total double" in the class'
    )
    raise RowError(message)


class Emission:
    """Takes the rows of one task and epoch."""

    def __init__(
        self, outputs: Mapping[str, Schema], ctx: OperatorContext, *, checks: bool
    ) -> None:
        """Begin without rows.

        Args:
            outputs: Columns of the outputs.
            ctx: Whose event time rows have; side outputs are reached through it.
            checks: Whether each row is checked when it is emitted.
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
        sides = {n: r for n, r in self.rows.items() if n != MAIN}
        ctx.emit_into(self.main, sides, whole)

    def _giver(self) -> Callable[[Iterable[Any]], None]:
        """Return what takes the rows of a record: called for each, it has no self."""
        ctx, main, width, as_row = self._ctx, self.main, self.plain_width, self._as_row

        def give(rows: Iterable[Any]) -> None:
            if type(rows) not in _ROWS:
                check_rows(rows)
            at = ctx.time_us
            try:
                if width is None:
                    main.extend([(as_row(r), at) for r in rows])
                    return
                main.extend(
                    [
                        (r, at)
                        if type(r) is tuple and len(r) == width
                        else (as_row(r), at)
                        for r in rows
                    ]
                )
            except RowError as error:
                error.line = generator_line(rows)
                raise

        return give

    def emit(self, rows: Iterable[Any] | None) -> None:
        """Take the rows of a step, if any, each with the current time."""
        if rows is not None:
            check_rows(rows)
            ctx, as_row = self._ctx, self._as_row
            try:
                # Built-in operators may move the time on from row to row.
                self.main.extend([(as_row(r), ctx.time_us) for r in rows])
            except RowError as error:
                error.line = generator_line(rows)
                raise

    def give_one(self, row: Any, at_us: int | None) -> None:
        """Take a row of a given time."""
        self.main.append((self._as_row(row), at_us))

    def give_all(self, rows: Iterable[Any] | None, at_us: int | None) -> None:
        """Take rows of a given time, if there are any."""
        if rows is not None:
            self._ctx.time_us = at_us
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
        """Forget what was emitted since."""
        for rows, mark in zip(self.rows.values(), marks, strict=True):
            del rows[mark:]
