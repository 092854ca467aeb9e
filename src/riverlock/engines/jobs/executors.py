"""Counts the executors of a Spark application."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from riverlock.core.times import duration_us
from riverlock.driver.attendance import Attendance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riverlock.driver.run_options import RunOptions

__all__ = ["attendance_on", "is_local"]


def is_local(spark: SparkSession) -> bool:
    """Tell whether the driver runs the tasks itself."""
    return re.match(r"local(\[|$)", spark.sparkContext.master or "") is not None


def attendance_on(spark: SparkSession, options: RunOptions) -> Attendance | None:
    """Return what watches over the executors; None where there is nothing to watch."""
    if options.executor_timeout is None or is_local(spark):
        return None
    context: Any = spark.sparkContext

    def executors() -> int | None:
        try:
            # Of who keeps their blocks: listeners of events may miss some.
            found = context._jsc.sc().getExecutorMemoryStatus().size()
        except (Py4JError, ConnectionError, AttributeError):
            return None  # the session is gone, and what runs on it has ended
        return int(found) - 1  # the driver is among them

    return Attendance(
        master=context.master or "",
        executors=executors,
        clock=options.clock,
        limit_us=duration_us(options.executor_timeout),
    )
