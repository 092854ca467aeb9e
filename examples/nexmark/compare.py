"""What the flow has made, next to what it should have made, as multisets of rows."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from examples.nexmark.batch import expected
from examples.nexmark.queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


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
    truth = expected(spark, name)
    made = _written(spark, f"{out}/{name}", truth, QUERIES[name].key)
    counts = Counter(_values(truth.collect(), truth.columns))
    found = Counter(_values(_newest(made, QUERIES[name].key), truth.columns))
    if name == "q12":
        found = _over_all_periods(found)
    return Comparison(
        name=name,
        expected=counts.total(),
        found=found.total(),
        lost=(counts - found).total(),
        duplicated=(found - counts).total(),
    )


def _written(
    spark: "SparkSession", folder: str, truth: "DataFrame", key: tuple[str, ...]
) -> list["Row"]:
    """Read what the sink wrote, as any reader would; ``epoch`` is in its folders."""
    missing = [f"{column} timestamp" for column in key if column not in truth.columns]
    columns = [f"{f.name} {f.dataType.simpleString()}" for f in truth.schema.fields]
    schema = ", ".join([*columns, *missing, "epoch bigint"])
    return spark.read.schema(schema).parquet(folder).collect()


def _newest(rows: list["Row"], key: tuple[str, ...]) -> Iterable["Row"]:
    """Return the rows that count: of rows that replace each other, the last."""
    if not key:
        return rows
    rows.sort(key=attrgetter("epoch"))
    return {tuple(row[k] for k in key): row for row in rows}.values()


def _values(rows: Iterable["Row"], columns: list[str]) -> Iterable[tuple[Any, ...]]:
    return (tuple(row[c] for c in columns) for row in rows)


def _over_all_periods(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Add up the bids that each bidder made in any period of the clock."""
    bids: Counter[Any] = Counter()
    for (bidder, number), periods in rows.items():
        bids[bidder] += number * periods
    return Counter(bids.items())
