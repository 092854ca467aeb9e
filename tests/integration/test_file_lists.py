"""State files in lists beside the manifest: tasks of Spark read them (format §4.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.snapshot import file_lists
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import LISTS_FEATURE
from riverlock.storage import LocalStorage

pytestmark = pytest.mark.spark

KEYS = 13
EACH = 60  # rows of an epoch


class Total(rl.Process):
    """Refuses any row that does not follow the one before of its key."""

    output = "user bigint, total bigint"
    seen = rl.Value("bigint", default=0)
    total = rl.Value("bigint", default=0)

    def on_event(self, row: Any, ctx: rl.Context) -> Any:
        assert row.number == self.seen
        self.seen += 1
        self.total += row.amount
        yield row.user, self.total


def flow_of(rows: int) -> rl.Flow:
    columns = {"user": f"id % {KEYS}", "number": f"id div {KEYS}", "amount": "id % 7"}
    flow = rl.Flow("totals", key_groups=16)
    read = flow.read(rl.sources.generator(columns, rows=rows), uid="in")
    read.key_by("user").process(Total(), uid="total").write(
        rl.sinks.memory(), uid="out"
    )
    return flow


def expected(rows: int) -> dict[int, int]:
    return {
        key: sum(n % 7 for n in range(key, rows, KEYS))
        for key in range(min(rows, KEYS))
    }


def test_lists_through_recovery_and_other_numbers_of_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lists, "MOST", 1)
    monkeypatch.setattr(file_lists, "LONGEST", 2)
    store, catalog = tmp_path / "s", Catalog(LocalStorage(tmp_path / "s"))
    rows = 0
    for place, tasks, epochs in (
        ("here", 4, 3),
        ("there", 4, 1),  # no working copy: state is read from lists
        ("there", 6, 1),
        ("here", 3, 2),  # copies that are behind
    ):
        rows += epochs * EACH
        flow_of(rows).run(
            str(store),
            spark=spark,
            available_now=True,
            max_rows_per_epoch=EACH,
            parallelism=tasks,
            working_dir=str(tmp_path / place),
        )
        state = catalog.stored(catalog.epochs()[-1]).operators["total"]
        assert sum(each.files for each in state.lists) > len(state.files)
        found = rl.open(str(store)).state("total").to_arrow().to_pylist()
        assert {row["user"]: row["total"] for row in found} == expected(rows)
    assert catalog.flow().features == (LISTS_FEATURE,)
    assert rl.stores.verify(str(store)).is_whole
