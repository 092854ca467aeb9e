"""Gaps of sessions that differ from record to record, as Spark computes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    CalendarIntervalType,
    DayTimeIntervalType,
    NumericType,
    StringType,
)

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import GAP
from riverlock.engines.jobs.frames.unaccepted import explaining
from riverlock.program.windows import SessionWindows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from riverlock.program.graph import Keyed

__all__ = ["with_gap"]

_INTERVAL = "unix_micros(timestamp_seconds(0) + ({x}))"


def with_gap(frame: DataFrame, node: Keyed) -> DataFrame:
    """Return a frame with the gap after each record, if the gaps of a window differ.

    Raises:
        InvalidFlowError: The expression does not yield durations.
    """
    window = None if node.windows is None else node.windows.window
    if not isinstance(window, SessionWindows) or window.gap_expr is None:
        return frame
    text = window.gap_expr
    with explaining(f"gap_expr of operator {node.uid!r}"):
        kind = frame.select(F.expr(text).alias("gap")).schema["gap"].dataType
    if isinstance(kind, CalendarIntervalType | DayTimeIntervalType):
        micros = _INTERVAL.format(x=text)
    elif isinstance(kind, StringType):
        micros = _INTERVAL.format(x=f"try_cast(({text}) as interval)")
    elif isinstance(kind, NumericType):
        micros = f"round(({text}) * 1000000)"
    else:
        wanted = "an interval, text such as '5 minutes', or a number of seconds"
        raise _refused(node, wanted, kind.simpleString())
    return frame.withColumn(GAP, F.expr(f"cast({micros} as bigint)"))


def _refused(node: Keyed, expected: str, found: str) -> InvalidFlowError:
    return InvalidFlowError(
        f"gap_expr of operator {node.uid!r}", expected=expected, found=found
    )
