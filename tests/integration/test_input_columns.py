"""Sources whose columns are others at a restart: gone on with, or refused untouched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.engines.running import check
from riverlock.flow.inside import program_of
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark

COLUMNS = "k string, amount int, note string, spare int, at timestamp"
RENAMED = "k string, price int, note string, spare int, at timestamp"
DROPPED = "k string, amount int, spare bigint, at timestamp, more string"
OTHER = "k string, amount string, note string, spare int, at timestamp"
WIDER = "k string, amount bigint, note string, at timestamp, more string"


class Totals(rl.Process):
    output = "k string, total bigint, fields int"
    total = rl.Value("bigint", default=0)

    def on_event(self, e: Any, ctx: Any) -> Iterator[Any]:
        self.total += e.amount
        yield e.k, self.total, len(tuple(e))


def orders(folder: Path, columns: str) -> tuple[rl.Flow, Any]:
    flow, out = rl.Flow("orders", key_groups=4), rl.sinks.memory()
    source = rl.sources.files(str(folder / "in"), format="json", schema=columns)
    rows = flow.read(source, uid="orders").event_time("at")
    rows = rows.where("amount > 0").select("k", "amount", "note", "at")
    rows.key_by("k").process(Totals(), uid="totals").write(out, uid="out")
    return flow, out


def loose(folder: Path, columns: str) -> rl.Flow:
    """Return the same flow, but for a step that takes whatever columns there are."""
    flow = rl.Flow("orders", key_groups=4)
    source = rl.sources.files(str(folder / "in"), format="json", schema=columns)
    rows = flow.read(source, uid="orders").event_time("at").where("k IS NOT NULL")
    rows.key_by("k").process(Totals(), uid="totals").write(rl.sinks.memory(), uid="out")
    return flow


def write(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    rows = [
        {"k": k, "amount": number, "note": "n", "spare": 1, "at": "2026-01-01"}
        for k in ("a", "b")
    ]
    text = "\n".join(map(json.dumps, rows))
    (folder / "in" / f"{number}.json").write_text(text)


def listing(folder: Path) -> dict[str, int]:
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {str(p): p.stat().st_mtime_ns for p in files}


def test_columns_come_go_and_widen_at_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")
    options: dict[str, Any] = {"spark": spark, "available_now": True, "parallelism": 1}
    write(tmp_path, 1)
    flow, out = orders(tmp_path, COLUMNS)
    flow.run(store, **options)
    first = Catalog(open_storage(store)).resolve(None)

    assert first.columns["orders"] == COLUMNS
    assert first.columns["totals"] == "k string, amount int, note string, at timestamp"
    assert sorted(out.rows()) == [("a", 1, 4), ("b", 1, 4)]

    write(tmp_path, 2)
    before = listing(tmp_path / "store")
    # Spark misses it, and we say why.
    with pytest.raises(InvalidFlowError) as missed:
        orders(tmp_path, RENAMED)[0].run(store, **options)
    # Spark does not miss what only Python code was given.
    with pytest.raises(InvalidConfigError) as gone:
        loose(tmp_path, DROPPED).run(store, **options)
    with pytest.raises(InvalidConfigError, match="amount int is string now"):
        loose(tmp_path, OTHER).run(store, **options)
    assert listing(tmp_path / "store") == before

    assert missed.value.hint == (
        "since epoch 0, source 'orders' has changed: amount int is gone,"
        " price int is new"
    )
    assert (
        "got note string is gone, which 'totals' was given, spare int is bigint now,"
        " more string is new"
    ) in gone.value.message
    assert "flow.retired_columns('orders', 'note')" in gone.value.hint

    # Wider, new, and one less that no code was given.
    flow, out = orders(tmp_path, WIDER)
    steps = check(program_of(flow), spark=spark)[0].inputs(first).steps
    assert [(s.variable, str(s.action)) for s in steps] == [
        ("amount", "widened"),
        ("spare", "dropped"),
        ("more", "added"),
    ]
    flow.run(store, **options)
    # A start gives a sink the newest epoch once more.
    assert sorted(out.rows()) == [("a", 1, 4), ("a", 3, 4), ("b", 1, 4), ("b", 3, 4)]
    second = Catalog(open_storage(store)).resolve(None)
    assert second.columns["orders"] == WIDER
