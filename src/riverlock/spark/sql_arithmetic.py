"""Arithmetic of whole numbers as SQL text: a formula of Python's operators gives it.

So that a rule that tasks follow with NumPy and Spark with SQL is written once. Division
with remainder rounds down, as Python's and NumPy's does.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SqlNumber", "SqlTruth"]


@dataclass(frozen=True)
class SqlTruth:
    """A condition."""

    text: str

    def __and__(self, other: SqlTruth) -> SqlTruth:
        """Return the condition that both hold."""
        return SqlTruth(f"({self.text} AND {other.text})")

    def __or__(self, other: SqlTruth) -> SqlTruth:
        """Return the condition that one of them holds."""
        return SqlTruth(f"({self.text} OR {other.text})")


@dataclass(frozen=True)
class SqlNumber:
    """A number of 64 bits: a column, or what is computed from some."""

    text: str

    @classmethod
    def of(cls, value: int | SqlNumber) -> SqlNumber:
        """Return a number as such."""
        return cls(f"{value}L") if isinstance(value, int) else value

    def _with(self, operator: str, other: int | SqlNumber) -> str:
        return f"({self.text} {operator} {SqlNumber.of(other).text})"

    def __add__(self, other: int | SqlNumber) -> SqlNumber:
        """Add."""
        return SqlNumber(self._with("+", other))

    def __sub__(self, other: int | SqlNumber) -> SqlNumber:
        """Subtract."""
        return SqlNumber(self._with("-", other))

    def __rsub__(self, other: int) -> SqlNumber:
        """Subtract from a number."""
        return SqlNumber.of(other) - self

    def __mod__(self, divisor: int) -> SqlNumber:
        """Return the remainder, which is never negative."""
        return SqlNumber(f"pmod({self.text}, {divisor}L)")

    def __le__(self, other: int | SqlNumber) -> SqlTruth:
        """Compare."""
        return SqlTruth(self._with("<=", other))

    def __lt__(self, other: int | SqlNumber) -> SqlTruth:
        """Compare."""
        return SqlTruth(self._with("<", other))

    def __ge__(self, other: int | SqlNumber) -> SqlTruth:
        """Compare."""
        return SqlTruth(self._with(">=", other))

    def __gt__(self, other: int | SqlNumber) -> SqlTruth:
        """Compare."""
        return SqlTruth(self._with(">", other))
