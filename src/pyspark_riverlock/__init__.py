"""Where Spark finds ``spark.read.format("riverlock")``.

PySpark looks for modules named ``pyspark_*`` and registers their ``DefaultSource``.
"""

from __future__ import annotations

from riverlock.spark.datasource import DefaultSource

__all__ = ["DefaultSource"]
