"""Expressions that are not evaluated for rows that do not need them.

A branch that cannot fail is evaluated for all rows: that is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.columnar.arrays import nulled, scattered, truths, valid
from riverlock.columnar.expressions import Expression

if TYPE_CHECKING:
    from riverlock.columnar.rows import Rows

__all__ = ["Both", "Cases", "Either", "FirstValue", "Tried"]


@dataclass(frozen=True, eq=False)
class Both(Expression):
    """Two conditions; the second one does not matter where the first is false."""

    left: Expression
    right: Expression

    @cached_property
    def can_fail(self) -> bool:
        """Whether there are values that it raises for."""
        return self.left.can_fail or self.right.can_fail

    def over(self, rows: Rows) -> pa.Array:
        """Return where both hold."""
        left = rows.value(self.left)
        if not self.right.can_fail:
            return pc.and_kleene(left, rows.value(self.right))
        is_open = truths(pc.fill_null(left, fill_value=True))
        return pc.and_kleene(left, _where(rows, is_open, self.right))


@dataclass(frozen=True, eq=False)
class Either(Expression):
    """Two conditions; the second one does not matter where the first is true."""

    left: Expression
    right: Expression

    @cached_property
    def can_fail(self) -> bool:
        """Whether there are values that it raises for."""
        return self.left.can_fail or self.right.can_fail

    def over(self, rows: Rows) -> pa.Array:
        """Return where one of them holds."""
        left = rows.value(self.left)
        if not self.right.can_fail:
            return pc.or_kleene(left, rows.value(self.right))
        return pc.or_kleene(left, _where(rows, ~truths(left), self.right))


@dataclass(frozen=True, eq=False)
class Cases(Expression):
    """The value of the first condition that holds; the last has none."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression

    @cached_property
    def can_fail(self) -> bool:
        """Whether there are values that it raises for."""
        parts = [e for branch in self.branches for e in branch]
        return any(e.can_fail for e in (*parts, self.otherwise))

    def over(self, rows: Rows) -> pa.Array:
        """Return the value of the branch of each row."""
        left, places = rows, np.arange(rows.size)
        found: list[tuple[np.ndarray, pa.Array]] = []
        if not self.can_fail:
            return self._of_all(rows)
        for condition, value in self.branches:
            is_taken = truths(left.value(condition))
            if is_taken.any():
                taken = np.flatnonzero(is_taken)
                found.append((places[taken], left.part(taken).value(value)))
                others = np.flatnonzero(~is_taken)
                left, places = left.part(others), places[others]
        if len(places):
            found.append((places, left.value(self.otherwise)))
        return scattered(found, self.type.to_arrow(), rows.size)

    def _of_all(self, rows: Rows) -> pa.Array:
        found = rows.value(self.otherwise)
        for condition, value in reversed(self.branches):
            holds = pc.fill_null(rows.value(condition), fill_value=False)
            found = pc.if_else(holds, rows.value(value), found)
        return found


@dataclass(frozen=True, eq=False)
class FirstValue(Expression):
    """The first of some expressions that is not null."""

    parts: tuple[Expression, ...]

    @cached_property
    def can_fail(self) -> bool:
        """Whether there are values that it raises for."""
        return any(e.can_fail for e in self.parts)

    def over(self, rows: Rows) -> pa.Array:
        """Return the first value of each row."""
        first, *others = self.parts
        found = rows.value(first)
        for part in others:
            is_valid = valid(found)
            if is_valid is None:
                break
            more = _where(rows, ~is_valid, part) if part.can_fail else rows.value(part)
            found = pc.if_else(pc.is_valid(found), found, more)
        return found


@dataclass(frozen=True, eq=False)
class Tried(Expression):
    """An expression, or null where it fails."""

    part: Expression

    def over(self, rows: Rows) -> pa.Array:
        """Return the values of the rows that do not fail."""
        if not self.part.can_fail:
            return rows.value(self.part)
        tried = rows.tried()
        found = tried.value(self.part)
        assert tried.wrong is not None
        return nulled(found, tried.wrong) if tried.wrong.any() else found


def _where(rows: Rows, mask: np.ndarray, expression: Expression) -> pa.Array:
    """Return values of some rows only; null for the others."""
    if mask.all():
        return rows.value(expression)
    places = np.flatnonzero(mask)
    kind = expression.type.to_arrow()
    if not len(places):
        return pa.nulls(rows.size, kind)
    found = rows.part(places).value(expression)
    return scattered([(places, found)], kind, rows.size)
