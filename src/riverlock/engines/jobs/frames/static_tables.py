"""Joins of a stream with a table that is read whole in every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["join_static"]


def join_static(
    spark: SparkSession, frame: DataFrame, table: Any, on: tuple[str, ...], how: str
) -> DataFrame:
    """Return the rows of a frame, each with the rows of a table that match it.

    The table is broadcast: rows of the stream stay where they are, in their order, so
    that an epoch that is run again has the same rows.

    Raises:
        InvalidFlowError: It is not a table, or columns are missing or on both sides.
    """
    found = table(spark) if callable(table) else table
    if not isinstance(found, DataFrame):
        raise InvalidFlowError(
            "join_static(table=)",
            expected="a DataFrame, or a function that returns one for a SparkSession",
            found=repr(found),
        )
    for side, columns in (("stream", frame.columns), ("table", found.columns)):
        for column in on:
            if column not in columns:
                shown = [c for c in columns if c not in HIDDEN]
                raise InvalidFlowError(
                    f"join_static(on=) for the {side}",
                    expected=f"one of {', '.join(shown)}",
                    found=repr(column),
                )
    rest = [c for c in found.columns if c not in on]
    clash = [c for c in rest if c in frame.columns]
    if clash:
        raise InvalidFlowError(
            "join_static()",
            expected="no column names on both sides, except those of on=",
            found=f"{', '.join(clash)} on both sides",
            hint="rename them in the table: table.withColumnRenamed(...)",
        )
    joined = frame.join(F.broadcast(found), list(on), how)
    return joined.select(*(F.col(f"`{c}`") for c in [*frame.columns, *rest]))
