from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.cli.stores import make_store
from tests.unit.snapshot.builders import GROUPS, PATHS, catalog, manifest, write
from tests.unit.snapshot.small_flow import SmallFlow, state_of

import riverlock as rl
from riverlock.core.errors import SnapshotCorruptedError
from riverlock.snapshot.compaction import Compaction, compact
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
