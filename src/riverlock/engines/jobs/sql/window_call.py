"""``window(at, '1 hour')`` and ``session_window(at, '5 minutes')`` in GROUP BY."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from riverlock.core.errors import InvalidFlowError
from riverlock.engines.jobs.sql.scope import is_column
from riverlock.program.windows import SessionWindows, TimeWindows
from riverlock.spark.plan_trees import kind, names, sequence

if TYPE_CHECKING:
    from riverlock.engines.jobs.sql.scope import Spine
    from riverlock.spark.plan_trees import Trees

__all__ = ["check_time", "gap_of", "window_kind", "window_of"]

_KINDS = {"window": (2, 3, 4), "session_window": (2,)}


def window_kind(expression: Any) -> str | None:
    """Return ``window`` or ``session_window``; None for any other expression."""
    if kind(expression) != "UnresolvedFunction":
        return None
    name = ".".join(names(expression)).casefold()
    return name if name in _KINDS else None


def gap_of(call: Any) -> Any:
    """Return the gap of a session that is not the same after all records, or None."""
    if window_kind(call) != "session_window":
        return None
    gaps = sequence(call.arguments())[1:]
    return gaps[0] if len(gaps) == 1 and kind(gaps[0]) != "Literal" else None


def window_of(trees: Trees, call: Any) -> TimeWindows | SessionWindows:
    """Return the windows that a call describes, as Spark reads it.

    Raises:
        InvalidFlowError: Spark would refuse it.
    """
    name = window_kind(call)
    assert name is not None
    at, *given = sequence(call.arguments())
    if 1 + len(given) not in _KINDS[name]:
        raise _bad(call, f"{len(given)} durations")
    if any(kind(each) != "Literal" for each in given):
        raise _bad(call, "an expression")
    size = given[0]
    slide = given[1] if len(given) > 1 else size
    start = given[2] if len(given) > 2 else trees.expression("'0 seconds'")
    try:
        size_us, slide_us, start_us = trees.window_us(at, size, slide, start)
    except (PySparkException, Py4JError) as error:
        raise _bad(call, "something else") from error
    if size_us <= 0 or not 0 < slide_us <= size_us or abs(start_us) >= slide_us:
        raise _bad(call, "durations that do not fit each other")
    if name == "session_window":
        return SessionWindows(gap_us=size_us)
    return TimeWindows(
        size_us=size_us, slide_us=slide_us, offset_us=start_us % slide_us
    )


def _bad(call: Any, found: str) -> InvalidFlowError:
    return InvalidFlowError(
        f"{call.sql()} of flow.sql",
        expected="fixed durations such as '1 hour', of which a slide is at most the"
        " size, and a start less than the slide",
        found=found,
    )


def check_time(call: Any, spine: Spine) -> None:
    """Refuse windows over anything but the time of the watermark.

    For rows that are windows themselves, that is the last instant of each.

    Raises:
        InvalidFlowError: It is another column, or there is none.
    """
    at = sequence(call.arguments())[0]
    time, window = spine.about.time, spine.about.window
    if time is not None and is_column(at, time):
        return
    if window is not None and is_column(_window_time(at), window):
        return
    known = [n for n in (time, window) if n is not None]
    raise InvalidFlowError(
        f"{call.sql()} of flow.sql",
        expected=f"the event time, {known[0]}" if known else "a stream with event time",
        found=at.sql(),
        hint='declare it: stream.event_time("at", delay="..."), and keep the column in'
        " sub-selects",
    )


def _window_time(expression: Any) -> Any:
    """Return the argument of ``window_time(...)``, or anything else unchanged."""
    if kind(expression) != "UnresolvedFunction" or names(expression) != ["window_time"]:
        return expression
    return sequence(expression.arguments())[0]
