"""Operators that remember records, in one flow on Spark, against plain computations."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.core.types import schema_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark

T0 = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "user string, n bigint, kind string, amount double, at timestamp"
DELAY = 10
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def clicks() -> list[Row]:
    """Records in order of arrival, none more than the delay late."""
    rng = random.Random(11)
    users = ["ann", "bob", "zoë", None]
    times = sorted(
        ((rng.randrange(300), rng.randrange(DELAY + 1)) for _ in range(400)),
        key=sum,
    )
    return [
        (
            rng.choice(users),
            n,
            rng.choice(["look", "cart", "buy", "leave"]),
            float(rng.randrange(50)),
            T0 + timedelta(seconds=at),
        )
        for n, (at, _) in enumerate(times)
    ]


@pytest.fixture(scope="module")
def clicks_dir(tmp_path_factory: pytest.TempPathFactory, clicks: list[Row]) -> str:
    """The records in four files, each of which becomes an epoch."""
    path = tmp_path_factory.mktemp("clicks")
    schema = schema_of(COLUMNS).to_arrow()
    for number, begin in enumerate(range(0, len(clicks), 100)):
        columns = zip(*clicks[begin : begin + 100], strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        table = pa.table(arrays, schema=schema)
        pq.write_table(table, path / f"{number:05d}.parquet")
    return str(path)


def read(flow: rl.Flow, path: str) -> rl.Stream:
    stream = flow.read(rl.sources.files(path, format="parquet", schema=COLUMNS))
    return stream.event_time("at", delay=f"{DELAY} seconds")


def run(flow: rl.Flow, store: Path, spark: SparkSession) -> None:
    flow.run(str(store), spark=spark, available_now=True, max_rows_per_epoch=1)
    catalog = Catalog(open_storage(str(store)))
    assert len(catalog.epochs()) >= 4
    assert all(report.is_whole for report in verify(catalog))


def once(clicks: list[Row]) -> list[Row]:
    """The clicks that are 15 seconds away from each that was kept before them."""
    found: list[Row] = []
    for row in clicks:
        mine = [abs(row[4] - other[4]) for other in found if other[0] == row[0]]
        if all(distance >= timedelta(seconds=15) for distance in mine):
            found.append(row)
    return found


def best(clicks: list[Row]) -> dict[Any, Row]:
    """The three largest amounts of each user, by rank."""
    found: dict[Any, Row] = {}
    for user in {row[0] for row in clicks}:
        mine = sorted((r for r in clicks if r[0] == user), key=lambda r: -r[3])
        found |= {(user, rank): row for rank, row in enumerate(mine[:3], 1)}
    return found


def bought(clicks: list[Row]) -> list[Row]:
    """Carts and the purchases of more, without leaving, less than 20 seconds later."""
    found: list[Row] = []
    for user in {row[0] for row in clicks}:
        open_carts: list[Row] = []
        for row in sorted((r for r in clicks if r[0] == user), key=lambda r: r[4]):
            _, n, kind, amount, at = row
            open_carts = [c for c in open_carts if at - c[4] < timedelta(seconds=20)]
            first = next((c for c in open_carts if c[3] < amount), None)
            if kind == "buy" and first is not None:
                found.append((user, first[1], n, first[4], at))
                open_carts = []
            elif kind == "leave":
                open_carts = []
            elif kind == "cart":
                open_carts.append(row)
    return found


PATTERN = (
    rl.pattern("cart", lambda e: e.kind == "cart")
    .without("leave", lambda e: e.kind == "leave")
    .then("buy", lambda e, seen: e.kind == "buy" and e.amount > seen["cart"].amount)
    .within("20 seconds")
)
MATCHED = "user string, cart long, buy long, since timestamp, at timestamp"


def of_match(found: Any) -> Row:
    cart, buy = found["cart"], found["buy"]
    return cart.user, cart.n, buy.n, cart.at, buy.at


def test_operators_that_remember_records_equal_plain_loops(
    spark: SparkSession, tmp_path: Path, clicks: list[Row], clicks_dir: str
) -> None:
    flow = rl.Flow("clicks")
    keyed = read(flow, clicks_dir).key_by("user")
    kept, kept_late, top, matched, matched_late = (rl.sinks.memory() for _ in range(5))
    deduplicated = keyed.deduplicate("15 seconds", uid="once")
    deduplicated.write(kept)
    deduplicated.side("late").where("n >= 0").write(kept_late)
    keyed.top(3, by="amount", uid="best").write(top)
    matches = keyed.match(PATTERN, output=MATCHED, select=of_match, uid="bought")
    matches.write(matched)
    matches.side("late").write(matched_late)

    run(flow, tmp_path, spark)

    assert Counter(kept.rows()) == Counter(once(clicks))
    assert kept_late.rows() == []
    table: dict[Any, Row] = {}
    for epoch in sorted(top.epochs):
        table |= {(row[0], row[5]): row[:5] for row in top.epochs[epoch]}
    assert table == best(clicks)
    watermark = max(row[4] for row in clicks) - timedelta(seconds=DELAY)
    expected = bought([row for row in clicks if row[4] < watermark])
    assert len(expected) > 10
    assert Counter(matched.rows()) == Counter(expected)
    assert matched_late.rows() == []
