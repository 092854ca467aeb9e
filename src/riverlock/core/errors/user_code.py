"""Errors of records and of the user code that handles them."""

from __future__ import annotations

from typing import Any

from riverlock.core.errors.root import RiverlockError

__all__ = [
    "TimeRangeError",
    "UserCodeError",
]


class UserCodeError(RiverlockError):
    """User code raised; the cause is kept as text, since it crosses processes."""

    code = "USER_CODE"
    operator: str
    where: str
    cause: str
    problem: str
    key: object
    record: object
    epoch: int | None
    line: str
    trace: str

    def __init__(  # noqa: PLR0913 - all keywords: the parts of the message
        self,
        *,
        operator: str,
        where: str,
        cause: str,
        problem: str = "",
        key: object = None,
        record: object = None,
        epoch: int | None = None,
        line: str = "",
        trace: str = "",
        instead: str = "send such records to a dead-letter sink with on_error=",
    ) -> None:
        """Name operator, key, epoch, record and the user's own line.

        Args:
            operator: The operator.
            where: The method or function.
            cause: Class and text of what was raised.
            problem: What is wrong, if that is one of our own sentences.
            key: The key.
            record: The record.
            epoch: The epoch.
            line: The user's own line.
            trace: The traceback.
            instead: What to do with such records, other than fixing the code.
        """
        at = f"operator {operator!r}, {where}"
        problem = problem or f"user code raised {cause}"
        if key is not None:
            at += f", key {key!r}"
        if epoch is not None:
            at += f", epoch {epoch}"
        text = f"{problem}, at {at}"
        if line:
            text += f"\n  {line}"
        if record is not None:
            text += f"\n  record: {record}"
        super().__init__(
            text,
            hint="nothing of this epoch was committed; fix the code and restart,"
            f" or {instead}",
            operator=operator,
            where=where,
            cause=cause,
            problem=problem,
            key=key,
            record=record,
            epoch=epoch,
            line=line,
            trace=trace,
        )


class TimeRangeError(RiverlockError, ValueError):
    """A time or date of a row lies outside the years that Python can represent."""

    code = "TIME_RANGE"
    value: str
    column: str | None
    operator: str | None
    key: object
    record: str | None
    epoch: int | None

    def __init__(  # noqa: PLR0913 - the parts of the message
        self,
        value: str,
        *,
        column: str | None = None,
        operator: str | None = None,
        key: object = None,
        record: str | None = None,
        epoch: int | None = None,
    ) -> None:
        """Name the time and, as far as known, its column, row, operator and epoch."""
        what = value if column is None else f"column {column!r} is {value}"
        text = f"{what}, which lies outside the years 1 to 9999 of a Python datetime"
        if operator is not None:
            text = f"operator {operator!r} cannot take a row: {text}"
        if key is not None:
            text += f"; key {key!r}"
        if epoch is not None:
            text += f", epoch {epoch}"
        if record is not None:
            text += f"\n  record: {record}"
        super().__init__(
            text,
            hint="nothing of this epoch was committed; check whether milliseconds"
            " were taken for seconds; keep such rows out with where(...), make the"
            " column null with with_column(...), or send them to a dead-letter sink"
            " with on_error=",
            value=value,
            column=column,
            operator=operator,
            key=key,
            record=record,
            epoch=epoch,
        )

    def of(self, **place: Any) -> TimeRangeError:
        """Return the same error of an operator and a record."""
        return TimeRangeError(self.value, column=self.column, **place)
