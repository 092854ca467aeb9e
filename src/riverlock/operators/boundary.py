"""The wall around user code: what it raises becomes an error that helps."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import (
    RiverlockError,
    StateCorruptedError,
    StateTypeError,
    TimeRangeError,
    UserCodeError,
)
from riverlock.core.values.arrow_values import FarTime
from riverlock.operators.aggregates.aggregator import AggregatorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["aggregator_errors", "user_error", "user_line"]

# Said of aggregators, whose records other aggregates have counted by then.
_NOT_BURIED = (
    "keep such records out before agg, with filter or map and on_error=: agg has no"
    " dead letters, since Spark has combined the rows when an aggregator sees them"
)
_OURS = str(Path(__file__).resolve().parents[1])


def user_line(trace: TracebackType | None) -> str:
    """Return file, line and text of the innermost frame that is not ours."""
    frames = traceback.extract_tb(trace)
    theirs = [f for f in frames if not f.filename.startswith(_OURS)]
    if not theirs:
        return ""
    # Rather the user's own line than one in a library that it called.
    own = [f for f in theirs if "site-packages" not in f.filename]
    last = (own or theirs)[-1]
    return f"{last.filename}:{last.lineno} in {last.name}: {last.line or ''}".rstrip()


def user_error(  # noqa: PLR0913 - everything that helps to find the record
    error: BaseException,
    *,
    operator: str,
    where: str,
    key: object = None,
    record: object = None,
    epoch: int | None = None,
) -> RiverlockError:
    """Return the error to raise for what user code raised."""
    if isinstance(error, StateTypeError):
        error.line = error.line or user_line(error.__traceback__)
        if record is not None and error.record is None:
            error.locate(record=shown(record), epoch=epoch)
        return error
    if isinstance(error, StateCorruptedError | UserCodeError):
        return error
    if isinstance(error, TimeRangeError):
        text = None if record is None else shown(record)
        return error.of(operator=operator, key=key, record=text, epoch=epoch)
    advice = {}
    if isinstance(error, AggregatorError) and error.__cause__ is not None:
        advice = {"instead": _NOT_BURIED}
        where, record = error.where, error.record
        key = error.key if key is None else key
        error = error.__cause__
    cause = f"{type(error).__name__}: {error}"
    return UserCodeError(
        operator=operator,
        where=where,
        cause=cause,
        key=key,
        record=None if record is None else shown(record),
        epoch=epoch,
        line=user_line(error.__traceback__),
        trace="".join(traceback.format_exception(error)),
        **advice,
    )


@contextmanager
def aggregator_errors(operator: str, epoch: int) -> Iterator[None]:
    """Turn what aggregators raise inside into errors that help.

    Raises:
        UserCodeError: One did.
    """
    try:
        yield
    except AggregatorError as error:
        raise user_error(error, operator=operator, where="agg", epoch=epoch) from error


def shown(record: Any) -> str:
    """Return a record as short text."""
    text = record if isinstance(record, FarTime) else repr(record)
    return text if len(text) <= 500 else text[:497] + "..."
