"""The initial state of an operator, which the user provides as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import schema_of
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riverlock.program.graph import Keyed

__all__ = ["initial_frame"]


def initial_frame(spark: SparkSession, node: Keyed) -> DataFrame:
    """Return the initial state of an operator as a frame.

    Raises:
        InvalidFlowError: It is not a DataFrame.
    """
    found = node.initial(spark) if callable(node.initial) else node.initial
    if isinstance(found, tuple):
        columns, rows = found
        found = spark.createDataFrame(list(rows), struct_of(schema_of(columns)))
    if not isinstance(found, DataFrame):
        raise InvalidFlowError(
            f"initial state of operator {node.uid!r}",
            expected="a DataFrame, a function that makes one, or columns and rows",
            found=repr(found),
        )
    return found
