"""What was never assigned is shown as the process reads it: as its declared default."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.compat.reader import read
from tests.unit.cli.conftest import cli as cli
from tests.unit.snapshot.small_flow import SmallFlow

import riverlock as rl
from riverlock.query import Store, open_store


@dataclasses.dataclass
class Point:
    x: float = 1.5
    names: list[str] = dataclasses.field(default_factory=lambda: ["a"])


class Shop(rl.Process):
    """Assigns most of its state for one key only."""

    output = "k string, total long"
    total = rl.Value("long", default=0)
    limit = rl.Value("double", default=9.5)
    free = rl.Value("long")
    low = rl.Value("double", default=float("-inf"))
    price = rl.Value("decimal(10,2)", default=Decimal("1.50"))
    raw = rl.Value("binary", default=b"\x00\xff")
    day = rl.Value("date", default=date(2026, 1, 2))
    at = rl.Value("timestamp", default=datetime(2026, 1, 2, 3, tzinfo=UTC))
    clock = rl.Value("timestamp_ntz", default=datetime(2026, 1, 2, 3))  # noqa: DTZ001
    items = rl.Value("array<int>", default=[1, 2])
    rates = rl.Value("map<string,double>", default={"eur": 1.0})
    point = rl.Value(Point, default=Point())
    brief = rl.Value("string", default="none", ttl="1 hour")
    recent = rl.List("long")
    of_group = rl.Value("long", default=4, scope="group")

    def on_event(self, row: Any, ctx: Any) -> Any:
        if row.k == "list":
            self.recent.append(row.v)
        else:
            self.total += row.v
        if row.k == "bob":
            self.limit, self.items, self.brief = 1.0, [], "set"
            self.of_group += 1
        yield row.k, self.total


DEFAULTS = {
    "limit": 9.5,
    "free": None,
    "low": float("-inf"),
    "price": Decimal("1.50"),
    "raw": b"\x00\xff",
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
    "clock": datetime(2026, 1, 2, 3),  # noqa: DTZ001
    "items": [1, 2],
    "rates": {"eur": 1.0},
    "point": {"x": 1.5, "names": ["a"]},
    "brief": "none",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rows = [("ann", 1), ("list", 1), ("ann", 1), ("bob", 1)]
    SmallFlow(tmp_path / "store", rows, tmp_path / "out", process=Shop).run(
        epoch_rows=2
    )
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Store:
    return open_store(root)


def test_an_operator_shows_defaults_of_what_is_not_set(store: Store) -> None:
    rows = {row["k"]: row for row in store.state("op")}

    assert rows["ann"] == {"k": "ann", "total": 2, **DEFAULTS, "recent": []}
    assert rows["list"] == {"k": "list", "total": 0, **DEFAULTS, "recent": [1]}
    assert (rows["bob"]["limit"], rows["bob"]["items"]) == (1.0, [])
    assert rows["bob"]["brief"] == "set"
    assert store.state("op").get("ann") == [rows["ann"]]


def test_a_variable_shows_the_keys_that_have_it(root: Path, store: Store) -> None:
    assert [row["k"] for row in store.state("op", "limit")] == ["bob"]
    # What is stored stays as it is: other readers see what was assigned.
    assert [e["value"] for e in read(root, "op")["limit"]] == [1.0]


def test_queries_exports_and_changes_show_defaults(
    store: Store, tmp_path: Path
) -> None:
    found = store.sql('SELECT k, "limit" AS n FROM op ORDER BY k').to_pylist()
    store.export(tmp_path / "export")
    written = pd.read_parquet(tmp_path / "export" / "op").set_index("k")
    changes = {row["k"]: row for row in store.changes("op", since=0)}

    assert [(r["k"], r["n"]) for r in found] == [
        ("ann", 9.5),
        ("bob", 1.0),
        ("list", 9.5),
    ]
    assert dict(written["limit"]) == {"ann": 9.5, "bob": 1.0, "list": 9.5}
    assert changes["ann"]["before"]["limit"] == changes["ann"]["after"]["limit"] == 9.5


class Later(Shop):
    def on_event(self, row: Any, ctx: Any) -> Any:
        self.limit += 1
        yield row.k, 0


def test_a_diff_begins_with_the_default(root: Path, tmp_path: Path) -> None:
    rows = [("", 0)] * 4 + [("ann", 1), ("new", 1)]
    flow = SmallFlow(root, rows, tmp_path / "out", process=Later)
    flow.run(epoch_rows=2)

    found = rl.stores.diff(f"{root}@1", f"{root}@2")

    changes = {
        (c.key["k"], c.kind, c.before, c.after)
        for c in found.changes
        if c.key is not None and c.variable == "limit"
    }
    assert changes == {("ann", "changed", 9.5, 10.5), ("new", "added", None, 10.5)}
    # What both have by default is no difference.
    assert "price" not in {c.variable for c in found.changes if c.key == {"k": "ann"}}


def test_the_command_tells_defaults(cli: Any, root: Path) -> None:
    found = cli("state", root, "--json").json["operators"]["op"]["variables"]

    assert found["limit"]["default"] == 9.5
    assert found["price"]["default"] == "1.50"
    assert found["free"]["default"] is None


class Other(Shop):
    limit = rl.Value("double", default=3.0)


def test_another_default_is_shown_from_the_epoch_that_declares_it(
    root: Path, tmp_path: Path, store: Store
) -> None:
    rows = [("", 0)] * 4 + [("cid", 1)]
    SmallFlow(root, rows, tmp_path / "out", process=Other).run()

    assert store.state("op").get("ann")[0]["limit"] == 3.0
    assert store.state("op", at=1).get("ann")[0]["limit"] == 9.5
