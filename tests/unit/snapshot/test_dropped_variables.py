"""A variable that was dropped does not come back with a new one of its name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.compat.reader import read
from tests.unit.snapshot.small_flow import Row, SmallFlow

import riverlock as rl
from riverlock.query import open_store
from riverlock.snapshot.retention.compaction import Compaction, merged
from riverlock.snapshot.verbs.diff import Side, diff
from riverlock.snapshot.verbs.verify import verify
from riverlock.testing import harness


class First(rl.Process):
    output = "k string, total long"
    n = rl.Value("long", default=0)
    bonus = rl.Value("long", default=0)
    kept = rl.List("long")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.bonus += 100
        self.kept.append(100)
        yield row.k, self.bonus


class Without(rl.Process):
    output = "k string, total long"
    n = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        yield row.k, self.n


class Again(Without):
    bonus = rl.Value("long", default=0)
    kept = rl.List("long")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.bonus += 1
        self.kept.append(1)
        yield row.k, self.bonus + 10 * len(self.kept)


class Text(Without):
    bonus = rl.Value("string", default="")
    kept = rl.Value("string", default="")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.bonus += "x"
        self.kept += "y"
        yield row.k, len(self.bonus) + 10 * len(self.kept)


class AsMap(Without):
    bonus = rl.Map("string", "double")
    kept = rl.Map("long", "long")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.bonus["a"] = self.bonus.get("a", 0.0) + 1
        self.kept[len(self.kept)] = 1
        yield row.k, int(self.bonus["a"]) + 10 * len(self.kept)


class Renamed(Without):
    n = None
    bonus = rl.Value("long", default=0, formerly="n")
    kept = rl.List("long", ttl="1 day")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.bonus += 1
        self.kept.append(1)
        yield row.k, self.bonus + 10 * len(self.kept)


BEGIN: list[Row] = [("ann", 1), ("bob", 1), ("cid", 1)]
# Only bob is seen while there is no bonus.
MIDDLE: list[Row] = [*BEGIN, *[("bob", 1)] * 3]
END: list[Row] = [*MIDDLE, *BEGIN]


def flow(path: Path, process: type[rl.Process], rows: list[Row]) -> SmallFlow:
    return SmallFlow(path / "store", rows, path / "out", process=process)


def newest_rows(path: Path) -> list[tuple[str, int]]:
    last = max((path / "out").glob("epoch=*"), key=lambda p: int(p.name[6:]))
    lines = [x for f in sorted(last.iterdir()) for x in f.read_text().splitlines()]
    return sorted(tuple(json.loads(line).values()) for line in lines)


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        (Again, {"ann": 11, "bob": 11, "cid": 11}),
        (Text, {"ann": 11, "bob": 11, "cid": 11}),
        (AsMap, {"ann": 11, "bob": 11, "cid": 11}),
        (Renamed, {"ann": 12, "bob": 15, "cid": 12}),
    ],
)
def test_a_new_variable_begins_anew(
    tmp_path: Path, process: type[rl.Process], expected: dict[str, int]
) -> None:
    flow(tmp_path, First, BEGIN).run()
    flow(tmp_path, Without, MIDDLE).run()

    flow(tmp_path, process, END).run()

    assert dict(newest_rows(tmp_path)) == expected


def test_every_reader_sees_the_new_variable_only(tmp_path: Path) -> None:
    flow(tmp_path, First, BEGIN).run()
    flow(tmp_path, Without, MIDDLE).run()
    made = flow(tmp_path, Again, [*MIDDLE, ("cid", 1)])
    made.run()

    whole = {r["k"]: r for r in open_store(tmp_path / "store").state("op")}
    other = read(tmp_path / "store", "op")

    assert (whole["ann"]["n"], whole["bob"]["n"], whole["cid"]["n"]) == (1, 4, 2)
    assert whole["cid"]["bonus"] == 1
    assert whole["ann"]["bonus"] != 100
    assert not whole["ann"]["kept"]
    assert [e["value"] for e in other["bonus"]] == [1]
    assert [e["value"]["value"] for e in other["kept"]] == [1]
    assert all(report.is_whole for report in verify(made.catalog))


def test_lost_working_copies_and_other_tasks_change_nothing(tmp_path: Path) -> None:
    flow(tmp_path, First, BEGIN).run()
    flow(tmp_path, Without, MIDDLE).run()
    flow(tmp_path, Again, [*MIDDLE, ("cid", 1)]).run()
    shutil.rmtree(tmp_path / "store" / ".working")

    rows: list[Row] = [*MIDDLE, ("cid", 1), *BEGIN]
    made = SmallFlow(
        tmp_path / "store", rows, tmp_path / "out", process=Again, parallelism=3
    )
    made.run()

    assert dict(newest_rows(tmp_path)) == {"ann": 11, "bob": 11, "cid": 22}


def test_files_of_before_and_after_can_be_merged(tmp_path: Path) -> None:
    flow(tmp_path, First, BEGIN).run()
    flow(tmp_path, Without, MIDDLE).run()
    made = flow(tmp_path, AsMap, END)
    made.run(epoch_rows=1)
    newest = made.catalog.resolve(None)
    state = newest.operators["op"]
    plan = Compaction(operator="op", files=state.files, drops_tombstones=True)

    table = merged(made.catalog.storage, plan, now_us=newest.now_us)

    assert len(state.files) > 2
    assert table["entry"].to_pylist().count("map") == 6
    assert table["entry"].to_pylist().count("list") == 0


def test_a_diff_shows_a_dropped_variable_as_removed_from_every_key(
    tmp_path: Path,
) -> None:
    flow(tmp_path, First, BEGIN).run()
    made = flow(tmp_path, Without, MIDDLE)
    made.run(epoch_rows=1)
    catalog = made.catalog
    first, second, third = (
        Side(catalog.storage, (catalog.manifest(n),)) for n in range(3)
    )

    found = diff(first, second).summary()["op"]

    assert found["bonus"] == {"added": 0, "removed": 3, "changed": 0}
    assert found["kept"] == {"added": 0, "removed": 3, "changed": 0}
    assert found["n"] == {"added": 0, "removed": 0, "changed": 1}
    assert set(diff(second, third).summary()["op"]) == {"n"}


def test_the_harness_forgets_what_a_process_dropped() -> None:
    h = harness(First(), key="k", input="k string, v long")
    h.send(("ann", 1), ("bob", 1))
    h = h.restart(h.snapshot(), Without())
    h.send(("bob", 1))
    h = h.restart(h.snapshot(), Again())

    h.send(("ann", 1), ("bob", 1))

    assert sorted(h.output) == [("ann", 11), ("bob", 11)]
