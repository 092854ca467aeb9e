"""Generated rows: a function of their number."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from riverlock.connectors.generator.row_numbers import RowNumbers
from riverlock.connectors.generator.source_numbers import (
    ComputedSplit,
    Numbers,
    number_pieces,
)
from riverlock.core.hidden_columns import SEQ
from riverlock.spark.columnar import compile_steps
from riverlock.spark.repeatable import is_repeatable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from riverlock.columnar import Steps
    from riverlock.core.clock import Clock
    from riverlock.core.types import Schema
    from riverlock.sources import Generator

__all__ = ["GeneratorReader"]


class GeneratorReader(RowNumbers):
    """Reads ranges of row numbers; the pace counts from the first start."""

    gives_positions = True
    can_read_ahead = True

    def __init__(self, spark: SparkSession, source: Generator, clock: Clock) -> None:
        """Keep the description."""
        super().__init__(source, clock)
        self._spark = spark
        for text in source.columns.values():
            F.expr(text)  # one expression each, or Spark says what is wrong
        # A line of its own ends a comment, should the text end with one.
        columns = [f"({t}\n) AS {_quoted(n)}" for n, t in source.columns.items()]
        self._columns = ", ".join([*columns, f"id AS {SEQ}"])

    @property
    def schema(self) -> Schema:
        """The columns.

        Raises:
            InvalidFlowError: A column is an expression that only Spark evaluates.
        """
        return self._steps.columns

    @cached_property
    def _steps(self) -> Steps:
        given = self._spark.range(0).select("id", F.expr("0L AS seed"))
        if self._source.rows_per_second is not None:
            given = given.withColumn("created", F.expr("timestamp_micros(0)"))
        columns = self._source.columns.items()
        made = given.select(*(F.expr(f"({t}\n)").alias(n) for n, t in columns))
        return compile_steps(given, made, name="generator()")

    def splits(self, start: Any, end: Any, wanted: int) -> list[ComputedSplit]:
        """Return pieces of a range, with the expressions."""
        numbers = Numbers.of(self._source, start, end)
        return [ComputedSplit(self._steps, n) for n in number_pieces(numbers, wanted)]

    @property
    def is_repeatable(self) -> bool:
        """Whether the expressions are repeatable: they may use Spark's randomness."""
        given = self._spark.range(0).select(
            "id", F.expr("0L AS seed"), F.expr("timestamp_micros(0) AS created")
        )
        return is_repeatable(given.select(*map(F.expr, self._source.columns.values())))

    def read(self, start: Any, end: Any) -> DataFrame:
        """Compute the rows; one statement, since each costs Spark an analysis."""
        source, rows = self._source, end["row"] - start["row"]
        parts = source.partitions or self._spark.sparkContext.defaultParallelism
        # Spark writes numbers into the code that it generates, so that every range
        # would be compiled anew, a tenth of an epoch, and run slowly at first. An array
        # it keeps beside it, and an index that it cannot know beforehand keeps it from
        # looking inside. The length of a range is always in the code: hence only some.
        row = f"(id + {_hidden(start['row'])})"
        inner = [f"{row} AS id", f"{source.seed}L AS seed"]
        if source.rows_per_second is not None:
            step = 1_000_000 / source.rows_per_second
            micros = f"{start['origin_us']} + {row} * {step}"
            inner.append(f"timestamp_micros(cast({micros} as bigint)) AS created")
        return self._spark.sql(
            f"SELECT {self._columns} FROM"  # noqa: S608 - expressions of the user
            f" (SELECT {', '.join(inner)} FROM range(0, {_rounded(rows)}, 1, {parts})"
            f" WHERE id < {_hidden(rows)})"
        )


def _hidden(number: int) -> str:
    """Return a number as SQL that Spark does not compile into its code."""
    return f"array({number}L)[spark_partition_id() * 0]"


def _rounded(rows: int) -> int:
    """Return a range length of at least this, and less than a sixteenth longer.

    >>> [_rounded(n) for n in (0, 15, 100, 400_000)]
    [0, 15, 100, 409600]
    """
    step = 1 << max(0, rows.bit_length() - 5)
    return -(-rows // step) * step


def _quoted(name: str) -> str:
    doubled = name.replace("`", "``")
    return f"`{doubled}`"
