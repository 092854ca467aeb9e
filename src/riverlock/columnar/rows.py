"""Rows that expressions are evaluated over, each expression once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from riverlock.columnar.arrays import array_of
from riverlock.columnar.wrong import WrongValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar.expressions import Expression
    from riverlock.columnar.wrong import Fault

__all__ = ["Rows"]


class Rows:
    """Rows with columns by name; a part of them knows what the whole knows.

    Attributes:
        size: How many there are.
        now_us: What the time of day is.
    """

    def __init__(
        self,
        columns: Mapping[str, pa.Array],
        size: int,
        now_us: int,
        *,
        collects: bool = False,
    ) -> None:
        """Take the columns.

        Args:
            columns: By name, of one length.
            size: That length.
            now_us: The time of day for all rows.
            collects: Note which rows are wrong instead of raising at the first one.
        """
        self.size, self.now_us = size, now_us
        # Which rows are wrong, where that is asked for.
        self.wrong = np.zeros(size, np.bool_) if collects else None
        self._columns = dict(columns)
        self._known: dict[Expression, pa.Array] = {}
        self._whole: Rows | None = None
        self._places = np.empty(0, np.int64)
        self._taken: pa.Array | None = None

    def column(self, name: str) -> pa.Array:
        """Return a column."""
        if name not in self._columns:
            assert self._whole is not None, name
            self._columns[name] = self._whole.column(name).take(self._taken)
        return self._columns[name]

    def value(self, expression: Expression) -> pa.Array:
        """Return the values of an expression.

        Raises:
            WrongValueError: Spark raises for one of the rows, too.
        """
        found = self._known.get(expression)
        if found is None:
            found = self._looked_up(expression)
            if found is None:
                found = expression.over(self)
            self._known[expression] = found
        return found

    def _looked_up(self, expression: Expression) -> pa.Array | None:
        if self._whole is None:
            return None
        found = self._whole._known.get(expression)
        if found is None:
            found = self._whole._looked_up(expression)
        return None if found is None else found.take(self._taken)

    def shown(self, place: int) -> dict[str, pa.Scalar]:
        """Return a row of the whole, by the number that an error names."""
        rows = self
        while rows._whole is not None:
            rows = rows._whole
        return {name: column[place] for name, column in rows._columns.items()}

    def part(self, places: np.ndarray) -> Rows:
        """Return some of the rows."""
        found = Rows({}, len(places), self.now_us)
        found._whole, found._places = self, places
        found._taken = array_of(places, pa.int64())
        return found

    def tried(self) -> Rows:
        """Return the same rows, of which wrong ones are noted."""
        found = self.part(np.arange(self.size))
        found.wrong = np.zeros(self.size, np.bool_)
        return found

    def fail(self, fault: Fault) -> None:
        """Note that rows are wrong.

        Raises:
            WrongValueError: Nobody has asked which ones.
        """
        places = np.flatnonzero(fault.wrong)
        if not len(places):
            return
        rows, mine = self, places
        while rows.wrong is None:
            if rows._whole is None:
                detail = fault.detail(int(places[0]))
                raise WrongValueError(fault.condition, detail, int(mine[0]))
            rows, mine = rows._whole, rows._places[mine]
        rows.wrong[mine] = True
