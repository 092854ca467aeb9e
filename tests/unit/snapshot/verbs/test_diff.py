from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.cli.stores import make_store
from tests.unit.snapshot.builders import GROUPS, PATHS, catalog, manifest, write
from tests.unit.snapshot.local_flow import LocalFlow, source
from tests.unit.snapshot.small_flow import SmallFlow, state_of

import riverlock as rl
from riverlock.core.errors import SnapshotCorruptedError
from riverlock.query.opened_store import Store
from riverlock.snapshot.retention.compaction import Compaction, compact
from riverlock.storage import LocalStorage

entries = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "*e"]),
    st.one_of(st.none(), st.integers(0, 3)),
    min_size=1,
)


def by_key(found: Any) -> dict[str, tuple[str, Any, Any]]:
    return {
        "*e" if c.key is None else c.key["k"]: (c.kind, c.before, c.after)
        for c in found.changes
    }


def expected(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if before != after:
            kinds = {(True, False): "added", (False, True): "removed"}
            kind = kinds.get((before is None, after is None), "changed")
            found[key] = (kind, before, after)
    return found


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(entries, min_size=2, max_size=6), data=st.data())
def test_diff_of_any_two_epochs_is_that_of_two_dictionaries(
    tmp_path: Path, steps: list[dict[str, int | None]], data: st.DataObject
) -> None:
    shutil.rmtree(tmp_path / "s", ignore_errors=True)
    store = LocalStorage(tmp_path / "s")
    made = catalog(store)
    truth: list[dict[str, int]] = []
    state: dict[str, int] = {}
    files: tuple[Any, ...] = ()
    for epoch, step in enumerate(steps, 1):
        files = (*files, write(store, epoch, step))
        state = {k: v for k, v in (state | step).items() if v is not None}
        truth.append(dict(state))
        if len(files) > 2 and data.draw(st.booleans()):
            plan = Compaction(operator="op", files=files, drops_tombstones=True)
            attempt, pieces = f"c{epoch}", [(0, GROUPS)]
            files = compact(
                store, PATHS, plan, now_us=0, pieces=pieces, attempt=attempt
            )
        made.decide(manifest(epoch, files))
    a = data.draw(st.integers(1, len(steps)))
    b = data.draw(st.integers(1, len(steps)))

    found = rl.stores.diff(f"{store.uri}@{a}", f"{store.uri}@{b}")

    assert by_key(found) == expected(truth[a - 1], truth[b - 1])


def test_files_that_both_have_are_not_read(tmp_path: Path) -> None:
    store = LocalStorage(tmp_path / "s")
    made = catalog(store)
    low = write(store, 1, {"a": 1}, (0, 2))
    high = write(store, 1, {"b": 1, "c": 1}, (2, 8))
    made.decide(manifest(1, (low, high)))
    made.decide(manifest(2, (low, high, write(store, 2, {"b": 2}, (2, 8)))))
    store.delete(low.path)  # whoever reads it fails

    same = rl.stores.diff(f"{store.uri}@1", f"{store.uri}@1")
    found = rl.stores.diff(f"{store.uri}@1", f"{store.uri}@2")

    assert (same.changes, same.files_read) == ((), 0)
    assert by_key(found) == {"b": ("changed", 1, 2)}
    assert (found.files_read, found.files_skipped) == (2, 3)


def test_lists_maps_timers_and_times_to_live(tmp_path: Path) -> None:
    make_store(tmp_path / "s")

    found = rl.stores.diff(f"{tmp_path}/s@0", f"{tmp_path}/s@1")

    ann = [c for c in found.changes if c.key == {"user": "ann"}]
    assert {
        (c.variable, c.kind, c.before, c.after) for c in ann if c.variable != "timers"
    } == {
        ("spent", "changed", 3.0, 7.5),
        ("recent", "added", None, 4.5),
        ("seen", "added", None, 1),
    }
    (seen,) = [c for c in ann if c.variable == "seen"]
    assert seen.part == "cocoa"
    summary = found.summary()
    assert summary["velocity"]["spent"] == {"added": 0, "removed": 0, "changed": 1}
    assert summary["velocity"]["seen"]["changed"] == 1
    assert summary["pairs"]["n"]["changed"] == 1
    assert all(c.key != {"user": "ben"} for c in found.changes)


class Kinds(rl.Process):
    """State of every kind and scope, which comes and goes."""

    total = rl.Value("long")
    items = rl.List("long")
    seen = rl.Map("long", "long")
    rare = rl.List("long", scope="group")

    def on_event(self, row: Any, ctx: Any) -> None:
        at = BEGIN + timedelta(hours=row.n % 3)
        match row.n % 7:
            case 0:
                del self.total
                self.items.clear()
                self.rare.clear()
            case 1:
                self.seen.pop(row.n % 4, None)
                ctx.delete_timer(at, processing=True)
            case 2:
                ctx.set_timer(at, processing=True)
                self.seen[row.n % 4] = row.n
            case 3:
                self.rare.append(row.n)
            case _:
                self.total = row.n // 10
                self.items.append(row.n)


BEGIN = datetime(2100, 1, 1, tzinfo=UTC)


class KindsFlow(LocalFlow):
    def build(self) -> rl.Flow:
        flow = rl.Flow("kinds", key_groups=4)
        rows = flow.read(source("a double, b string, n long"), uid="rows")
        rows.key_by("a", "b").process(Kinds(), uid="op")
        return flow


def rows_by_key(store: Store, name: str, at: int) -> dict[str, str]:
    """The rows of each key, or group, that has any, as another reader sees it."""
    found: dict[str, list[Any]] = {}
    for row in store.state("op", name, at=at):
        place = repr([row.get(k) for k in ("a", "b", "key_group")])
        found.setdefault(place, []).append(row)
    return {key: repr(rows) for key, rows in found.items()}


def counted(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What became of keys, by comparing all there is of both epochs."""
    wanted = {}
    for name, old in before.items():
        new = after[name]
        counts = {
            "added": len(new.keys() - old.keys()),
            "removed": len(old.keys() - new.keys()),
            "changed": sum(old[k] != new[k] for k in old.keys() & new.keys()),
        }
        if any(counts.values()):
            wanted[name] = counts
    return {"op": wanted} if wanted else {}


def test_keys_are_added_if_they_had_nothing_and_removed_if_nothing_is_left(
    tmp_path: Path,
) -> None:
    chance = random.Random(3)
    numbers, letters = (1.0, math.nan, None), ("x", None)
    rows = [
        (chance.choice(numbers), chance.choice(letters), chance.randint(0, 99))
        for _ in range(60)
    ]
    flow = KindsFlow(tmp_path / "s", rows, tmp_path / "out")
    flow.run(epoch_rows=6)
    store = rl.open(tmp_path / "s")
    names = ("total", "items", "seen", "rare", "timers")
    states = [
        {n: rows_by_key(store, n, epoch) for n in names} for epoch in store.epochs()
    ]
    seen: Counter[str] = Counter()

    for before, after in permutations(range(len(states)), 2):
        found = rl.stores.diff(f"{tmp_path}/s@{before}", f"{tmp_path}/s@{after}")

        summary = found.summary()
        assert summary == counted(states[before], states[after]), (before, after)
        for name, counts in summary.get("op", {}).items():
            seen.update(f"{name} {kind}" for kind, number in counts.items() if number)
    assert len(seen) == 15  # every kind of change of every kind of state


def test_a_fork_and_its_parent(tmp_path: Path) -> None:
    rows = [(f"k{n % 4}", n) for n in range(12)]
    parent = SmallFlow(tmp_path / "store", rows, tmp_path / "out")
    parent.run(2)
    rl.stores.fork(str(parent.store), str(tmp_path / "fork"))
    other = [*rows[:6], ("k0", 100), ("new", 1), ("k1", 5)]
    child = SmallFlow(tmp_path / "fork", other, tmp_path / "fork-out")

    before = rl.stores.diff(str(parent.store), str(child.store))
    child.run()
    after = rl.stores.diff(str(parent.store), str(child.store))

    assert (before.changes, before.files_read) == ((), 0)
    totals = {c.key["k"]: c for c in after.changes if c.variable == "total" and c.key}
    ours, theirs = state_of(rows[:6]), state_of(other)
    assert {k: (c.before, c.after) for k, c in totals.items()} == {
        k: (ours[k][0] if k in ours else None, theirs[k][0])
        for k in theirs
        if ours.get(k) != theirs[k]
    }


def test_damage_is_not_compared(tmp_path: Path) -> None:
    store = LocalStorage(tmp_path / "s")
    made = catalog(store)
    made.decide(manifest(1, (write(store, 1, {"a": 1}),)))
    made.decide(manifest(2, (write(store, 2, {"a": 2}),)))
    store.delete(made.manifest(2).operators["op"].files[0].path)

    with pytest.raises(SnapshotCorruptedError):
        rl.stores.diff(f"{store.uri}@1", f"{store.uri}@2")


class Numbers(rl.Process):
    """Keeps numbers that are equal to others, or not to themselves."""

    output = "k string, v long"
    x = rl.Value("double")
    many = rl.Value("array<double>")
    parts = rl.Value("struct<x:double,m:map<string,double>>")
    named = rl.Map("double", "double")

    def on_event(self, row: Any, ctx: Any) -> Any:
        x = [0.0, -0.0, math.nan][row.v]
        self.x, self.many, self.parts = x, [1.0, x], {"x": x, "m": {"a": x}}
        self.named = {1.0: x, math.nan: x}
        yield row.k, row.v


@pytest.mark.parametrize(("first", "then"), [(0, 1), (1, 0), (0, 2), (2, 1)])
def test_a_zero_that_becomes_negative_is_a_change(
    tmp_path: Path, first: int, then: int
) -> None:
    rows = [("a", first), ("a", then)]
    flow = SmallFlow(tmp_path / "store", rows, tmp_path / "out", process=Numbers)
    flow.run(epoch_rows=1)

    found = rl.stores.diff(f"{tmp_path}/store@0", f"{tmp_path}/store@1")

    assert {c.kind for c in found.changes} == {"changed"}
    variables = sorted(c.variable for c in found.changes)
    assert variables == ["many", "named", "named", "parts", "x"]


def test_what_is_written_again_is_no_change(tmp_path: Path) -> None:
    rows = [("a", 2), ("a", 2), ("a", 1), ("a", 1)]
    flow = SmallFlow(tmp_path / "store", rows, tmp_path / "out", process=Numbers)
    flow.run(epoch_rows=1)

    for a, b in [(0, 1), (2, 3)]:
        found = rl.stores.diff(f"{tmp_path}/store@{a}", f"{tmp_path}/store@{b}")
        assert found.changes == ()
