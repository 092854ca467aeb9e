"""Generated rows: a function of their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from riverlock.runtime.columns import SEQ

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from riverlock.core.clock import Clock
    from riverlock.sources import Generator

__all__ = ["GeneratorReader"]


class GeneratorReader:
    """Reads ranges of row numbers; the pace counts from the first start."""

    gives_positions = True

    def __init__(self, spark: SparkSession, source: Generator, clock: Clock) -> None:
        """Keep the description."""
        self._spark, self._source, self._clock = spark, source, clock
        # Made once: each is a call into Spark's virtual machine.
        self._columns = [F.expr(t).alias(n) for n, t in source.columns.items()]
        self._columns.append(F.col("id").alias(SEQ))
        self._seed = F.lit(source.seed).cast("bigint")

    def initial(self) -> Any:
        """Begin at row 0; with a pace, time is counted from now."""
        if self._source.rows_per_second is None:
            return {"row": 0}
        return {"row": 0, "origin_us": self._clock.now_us()}

    def latest(self, start: Any) -> Any:
        """Return the number of rows there are by now."""
        end = self._source.rows
        pace = self._source.rows_per_second
        if pace is not None:
            passed = max(0, self._clock.now_us() - start["origin_us"])
            due = int(passed * pace / 1_000_000)
            end = due if end is None else min(due, end)
        assert end is not None
        return {**start, "row": max(start["row"], end)}

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Return an offset at most ``max_rows`` further."""
        return {**start, "row": min(start["row"] + max_rows, latest["row"])}

    def rows_between(self, start: Any, end: Any) -> int:
        """Return the number of rows."""
        return int(end["row"] - start["row"])

    def read(self, start: Any, end: Any) -> DataFrame:
        """Compute the rows."""
        source = self._source
        parts = source.partitions or self._spark.sparkContext.defaultParallelism
        # Spark writes numbers into the code that it generates, so that every range
        # would be compiled anew, a tenth of an epoch. An array it keeps beside it, and
        # an index that it cannot know beforehand keeps it from looking inside.
        first = F.expr(f"array({start['row']}L)[spark_partition_id() * 0]")
        ids = self._spark.range(0, end["row"] - start["row"], 1, parts)
        ids = ids.select((F.col("id") + first).alias("id"))
        if any("seed" in text.lower() for text in source.columns.values()):
            ids = ids.withColumn("seed", self._seed)
        if source.rows_per_second is not None:
            micros = f"{start['origin_us']} + id * {1_000_000 / source.rows_per_second}"
            created = F.expr(f"timestamp_micros(cast({micros} as bigint))")
            ids = ids.withColumn("created", created)
        return ids.select(*self._columns)

    def observed(self, rows: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def close(self) -> None:
        """Nothing is open."""
