"""Whether Spark's JVM is there.

It is a process of its own and may be killed at any moment. What Py4J raises then
depends on the moment and says little, so the machine itself is asked.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from riverlock.core.errors import ClusterLostError

__all__ = ["loss"]


def loss() -> ClusterLostError | None:
    """Return what to raise if the machine that this process started is gone."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return None  # none was started
    try:
        gateway.jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        context = SparkContext._active_spark_context
        master = None if context is None else context.master
        return ClusterLostError(master=master or "")
    return None
