"""What the flow has made, next to what it should have made, as multisets of rows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from examples.nexmark.batch import expected
from examples.nexmark.queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Comparison:
    name: str
    expected: int
    found: int
    lost: int
    duplicated: int  # or not expected at all

    @property
    def is_equal(self) -> bool:
        return self.lost == self.duplicated == 0


def compare(spark: "SparkSession", name: str, out: str) -> Comparison:
    """Compare the results of a query with those of plain Spark SQL."""
    from pyspark.sql import functions as F

    truth = expected(spark, name)
    made = results(spark, name, out)
    made = made.select(*truth.columns).withColumn("side", F.lit(-1))
    sides = truth.withColumn("side", F.lit(1)).unionAll(made)
    counted = sides.groupBy(*truth.columns).agg(
        F.count_if(F.col("side") > 0).alias("expected"),
        F.count_if(F.col("side") < 0).alias("found"),
    )
    row = counted.selectExpr(
        "sum(expected)",
        "sum(found)",
        "sum(greatest(expected - found, 0))",
        "sum(greatest(found - expected, 0))",
    ).first()
    assert row is not None
    numbers = [int(value or 0) for value in row]
    return Comparison(
        name=name,
        expected=numbers[0],
        found=numbers[1],
        lost=numbers[2],
        duplicated=numbers[3],
    )


def results(spark: "SparkSession", name: str, out: str) -> "DataFrame":
    """Return the rows of a query that count: of rows that replace others, the newest.

    ``epoch`` is the name of the folders in which the sink puts what an epoch gave.
    """
    rows = spark.read.parquet(f"{out}/{name}")
    key = ", ".join(QUERIES[name].key)
    if key:
        newest = f"row_number() over (partition by {key} order by epoch desc) as newest"
        rows = rows.selectExpr("*", newest).where("newest = 1").drop("newest")
    if name == "q12":
        rows = rows.groupBy("bidder").agg({"bids": "sum"})
        rows = rows.withColumnRenamed("sum(bids)", "bids")
    return rows
