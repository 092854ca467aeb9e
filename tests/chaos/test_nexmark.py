"""All Nexmark queries in one flow, killed on its way, against plain Spark SQL."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from examples.nexmark.compare import compare
from examples.nexmark.events import Events, make_tables
from examples.nexmark.queries import QUERIES, build
from examples.nexmark.runs import run, run_and_die
from tests.interpreted import interpreted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

EVENTS = Events(count=4_000, per_second=100, shuffled=50, seed=7)
EPOCHS = 2
ARGUMENTS = [
    *("--events", str(EVENTS.count), "--per-second", str(EVENTS.per_second)),
    *("--shuffled", str(EVENTS.shuffled), "--seed", str(EVENTS.seed)),
    *("--epochs", str(EPOCHS)),
]
# A worker dies in user code: its task is tried again. The driver dies when the epoch is
# decided and some queries show it: the next run completes it, and goes on from there.
KILLS = "P2=kill@20;P9=kill@7"


@pytest.fixture(scope="module")
def out(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the queries have written in the end; the events are tables, too."""
    root = tmp_path_factory.mktemp("nexmark")
    run_and_die(ARGUMENTS, root, KILLS)
    out = str(root / "out")
    run(build(EVENTS, out), spark, root, EVENTS.count // EPOCHS)
    make_tables(EVENTS, spark)
    return out


def test_queries_killed_on_their_way_equal_batch(spark: SparkSession, out: str) -> None:
    with interpreted(spark):
        results = [compare(spark, name, out) for name in QUERIES]

    assert [r for r in results if not r.is_equal] == []
    assert all(r.expected for r in results)


def test_comparison_notices_a_lost_and_a_duplicated_epoch(
    spark: SparkSession, out: str, tmp_path: Path
) -> None:
    first = next(Path(out, "q2").glob("epoch=*/*.parquet"))
    shutil.copytree(Path(out, "q2"), tmp_path / "twice" / "q2")
    shutil.copy(first, tmp_path / "twice" / "q2" / first.parent.name / "again.parquet")
    shutil.copytree(Path(out, "q2"), tmp_path / "lost" / "q2")
    (tmp_path / "lost" / "q2" / first.relative_to(Path(out, "q2"))).unlink()

    twice = compare(spark, "q2", str(tmp_path / "twice"))
    lost = compare(spark, "q2", str(tmp_path / "lost"))

    assert (twice.lost, lost.duplicated) == (0, 0)
    assert twice.duplicated == lost.lost > 0


def test_events_have_the_published_proportions(spark: SparkSession) -> None:
    events = Events(count=50_000, per_second=1_000, shuffled=100)
    make_tables(events, spark)

    kinds = [spark.table(kind).count() for kind in ("person", "auction", "bid")]
    found = spark.sql(
        """
        select avg(if((auction - 1000) % 100 = 0, 1, 0)) as hot_auctions,
               avg(if((bidder - 1000) % 100 = 1, 1, 0)) as hot_bidders,
               avg(if(price < 10000, 1, 0)) as cheap,
               max(place - (unix_micros(at) - 1767225600000000) div 1000) as late
        from bid
        """
    ).first()
    sellers = spark.sql("select avg(if((seller - 1000) % 100 = 0, 1, 0)) from auction")
    hot_sellers = sellers.first()

    assert kinds == [1_000, 3_000, 46_000]
    assert found is not None
    assert hot_sellers is not None
    assert found.hot_auctions == pytest.approx(1 / 2, abs=0.02)
    assert found.hot_bidders == pytest.approx(3 / 4, abs=0.02)
    assert hot_sellers[0] == pytest.approx(3 / 4, abs=0.03)
    # Prices are even in magnitude: a third of six powers of ten is below 100.00.
    assert found.cheap == pytest.approx(1 / 3, abs=0.02)
    assert 0 < found.late < events.shuffled
