"""The boundary around user code: what it raises becomes a helpful error."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import (
    RiverlockError,
    StateCorruptedError,
    StateTypeError,
    TimeRangeError,
    UserCodeError,
)
from riverlock.core.suggestions import did_you_mean
from riverlock.core.user_lines import function_line, raising_line
from riverlock.core.values.arrow_values import FarTime
from riverlock.core.values.record import NoColumnError, Record, no_column
from riverlock.operators.aggregates.aggregator import AggregatorError
from riverlock.program.params import params_of
from riverlock.program.process import KeyedLogic
from riverlock.state.columns.python_rows import RowError
from riverlock.state.spec import specs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.operators.effects import DeadLetter

__all__ = ["aggregator_errors", "dead_letter", "problem_of", "shown", "user_error"]

# Said of aggregators, whose records other aggregates have counted by then.
_NOT_BURIED = (
    "keep such records out before agg, with filter or map and on_error=: agg has no"
    " dead letters, since Spark has combined the rows when an aggregator sees them"
)


def user_error(  # noqa: PLR0913 - everything that helps to find the record
    error: BaseException,
    *,
    operator: str,
    where: str,
    key: object = None,
    record: object = None,
    epoch: int | None = None,
    function: object = None,
) -> RiverlockError:
    """Return the error to raise for what user code raised.

    Args:
        error: What was raised.
        operator: The operator.
        where: The method or function.
        key: The key.
        record: The record.
        epoch: The epoch.
        function: Whose line is told if nothing else is known.
    """
    if isinstance(error, StateTypeError):
        error.line = (
            error.line or raising_line(error.__traceback__) or function_line(function)
        )
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
        problem=problem_of(error),
        key=key,
        record=None if record is None else shown(record),
        epoch=epoch,
        line=getattr(error, "line", "")
        or raising_line(error.__traceback__)
        or function_line(function),
        trace="".join(traceback.format_exception(error)),
        **advice,
    )


def problem_of(error: BaseException) -> str:
    """Return what is wrong in a sentence of ours; empty: it is the user's own error."""
    if isinstance(error, RowError | NoColumnError):
        return str(error)
    if isinstance(error, RiverlockError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    if isinstance(error, AttributeError):
        if isinstance(error.obj, Record):
            return no_column(error.obj, str(error.name))
        return _not_there(error.obj, str(error.name))
    if isinstance(error, TypeError) and "'NoneType'" in str(error):
        return _no_time(error)
    return ""


def _not_there(owner: object, name: str) -> str:
    """Say it of what users get from us, and of their own process."""
    if isinstance(owner, KeyedLogic):
        declared = {*specs_of(type(owner)), *params_of(type(owner))}
        near = did_you_mean(name, declared)
        write = f'declare state in the class, as in {name} = rl.Value("double")'
        return f"self.{name} is not there; {near or write}"
    called = getattr(type(owner), "called", "")
    if not called:
        return ""
    near = did_you_mean(name, (n for n in dir(owner) if n[0] != "_"))
    return f"{called} has no {name!r}" + (f"; {near}" if near else "")


def _no_time(error: TypeError) -> str:
    if "ctx.time" not in raising_line(error.__traceback__):
        return ""
    return (
        f"user code raised TypeError: {error} (ctx.time is None if the stream has no"
        ' event time; declare it before key_by: .event_time("at", delay="1 minute"))'
    )


def dead_letter(
    error: Exception, *, operator: str, key: object, record: object, epoch: int
) -> DeadLetter:
    """Return the dead letter of a record for which user code raised."""
    cause = error.__cause__ if isinstance(error, RiverlockError) else None
    traces = [e.__traceback__ for e in (cause, error) if e is not None]
    lines = [*map(raising_line, traces), getattr(error, "line", "")]
    return (
        operator,
        shown(key),
        epoch,
        f"{type(error).__name__}: {error}",
        next(filter(None, lines), ""),
        shown(record),
    )


@contextmanager
def aggregator_errors(operator: str, epoch: int) -> Iterator[None]:
    """Turn what aggregators raise into helpful errors.

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
