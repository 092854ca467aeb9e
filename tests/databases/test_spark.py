"""A flow with state on Spark, killed between the commits of its sinks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.databases import shop
from tests.databases.places import Place, mariadb_place, postgres_place

pytestmark = [pytest.mark.spark, pytest.mark.chaos]
SERVERS: dict[str, Callable[[Any], Place]] = {
    "postgres": postgres_place,
    "mariadb": mariadb_place,
}


# After one of three sinks, in the second epoch; after the decision.
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("postgres", "P9=kill@4"),
        pytest.param("mariadb", "P8=kill@2", marks=pytest.mark.slow),
    ],
)
def test_a_flow_that_was_killed_goes_on(
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    name: str,
    fault: str,
) -> None:
    place = SERVERS[name](request.getfixturevalue(name))
    assert place.schema is not None
    store = str(tmp_path / "store")
    child = [sys.executable, "-m", "tests.databases.shop", place.url, place.schema]

    killed = subprocess.run(
        [*child, store],
        env={**os.environ, "RIVERLOCK_FAULTS": fault},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:].decode()
    shop.build(place.url, place.schema).run(
        store, spark=spark, available_now=True, max_rows_per_epoch=shop.EPOCH_ROWS
    )

    raw, totals, report = place.snapshot(
        "SELECT id, k, amount FROM {}raw ORDER BY id",
        "SELECT k, n, total FROM {}totals",
        "SELECT k, n, total FROM {}report",
    )
    assert ([tuple(r) for r in raw], sorted(tuple(r) for r in totals)) == (
        shop.expected()
    )
    assert sorted(map(tuple, report)) == sorted(map(tuple, totals))
    assert place.tables() == {"raw", "totals", "report", "riverlock_epochs"}
    stored = [p for p in (tmp_path / "store").rglob("*") if p.is_file()]
    assert stored
    assert not [p for p in stored if b"s3cret" in p.read_bytes()]
