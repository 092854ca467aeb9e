from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.snapshot.small_flow import SmallFlow

import riverlock as rl
from riverlock.core.errors import SnapshotNotFoundError
from riverlock.snapshot.format.records import Manifest
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.retention.compaction import Compaction, compact
from riverlock.storage import LocalStorage

ROWS = [(f"k{n % 4}", n) for n in range(18)]


@pytest.fixture
def flow(tmp_path: Path) -> SmallFlow:
    """Epochs 0 and 1 by run 1, 2 to 4 by run 2, 5 goes back to 1, 6 and 7 by run 4."""
    made = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out")
    made.run(2)
    made.parallelism = 2
    made.run(3)
    rl.stores.restore(f"{made.store}@1")
    made.run(2)
    return made


def test_explain_tells_runs_restores_and_inputs(flow: SmallFlow) -> None:
    found = rl.stores.explain(str(flow.store))

    assert found.run is not None
    assert found.run.run == 4
    legs = [
        (leg.what, leg.first, leg.last, leg.run and leg.run.run, leg.parallelism)
        for leg in found.legs
    ]
    assert legs == [
        ("run", 0, 1, 1, 1),
        ("undone", 2, 4, None, None),
        ("restore", 5, 5, 3, None),
        ("run", 6, 7, 4, 2),
    ]
    assert found.legs[2].from_epoch == 1
    assert found.inputs["rows"].rows == 12
    undone = rl.stores.explain(f"{flow.store}@4")
    assert [(leg.first, leg.last) for leg in undone.legs] == [(0, 1), (2, 4)]


def test_explain_of_a_fork_tells_its_origin(flow: SmallFlow, tmp_path: Path) -> None:
    rl.stores.fork(f"{flow.store}@4", str(tmp_path / "fork"))

    found = rl.stores.explain(str(tmp_path / "fork"))

    assert found.flow.origin is not None
    assert found.flow.origin.epoch == 4
    assert found.flow.origin.flow == flow.catalog.flow().id


@pytest.mark.parametrize("key", ["k0", "k1", "k2", "k3"])
def test_a_key_was_touched_by_the_epochs_that_read_it(
    flow: SmallFlow, key: str
) -> None:
    found = rl.stores.touches(str(flow.store), "op", key)

    # Epochs 6 and 7 read again what the undone ones had read.
    spans = {0: ROWS[0:3], 1: ROWS[3:6], 6: ROWS[6:9], 7: ROWS[9:12]}
    expected = [e for e, rows in spans.items() if key in {k for k, _ in rows}]
    assert [(t.first, t.last) for t in found] == [(e, e) for e in expected]
    for touch in found:
        assert touch.inputs is not None
        read = touch.inputs["rows"]
        assert ROWS[read.start : read.end] == spans[touch.first]


def test_merged_changes_are_told_by_their_span(tmp_path: Path) -> None:
    rows = [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
    flow = SmallFlow(tmp_path / "s", rows, tmp_path / "out")
    flow.run(epoch_rows=1)
    made, newest = flow.catalog, flow.catalog.resolve(3)
    files = newest.operators["op"].files
    plan = Compaction(operator="op", files=files[:3], drops_tombstones=True)
    merged = compact(
        made.storage, made.paths, plan, now_us=0, pieces=[(0, 16)], attempt="c"
    )
    for epoch in made.epochs():
        made.storage.delete(made.paths.manifest(epoch))
    made.decide(with_operators(newest, "op", "op", files=(*merged, files[3])))

    found = rl.stores.touches(f"{flow.store}@3", "op", "a")

    assert [(t.first, t.last) for t in found] == [(0, 2), (3, 3)]
    assert rl.stores.touches(f"{flow.store}@3", "op", "zzz") == []
    with pytest.raises(SnapshotNotFoundError):
        rl.stores.touches(f"{flow.store}@3", "nobody", "a")


def with_operators(found: Manifest, uid: str, new: str, **changes: Any) -> Manifest:
    """Return a manifest whose only operator has another name."""
    state = msgspec.structs.replace(found.operators[uid], **changes)
    return msgspec.structs.replace(found, operators={new: state})


def test_an_operator_is_followed_through_its_names(tmp_path: Path) -> None:
    rows = [("a", n) for n in range(6)]
    flow = SmallFlow(tmp_path / "s", rows, tmp_path / "out")
    flow.run(epoch_rows=1)
    made = flow.catalog
    # From epoch 2 on it is ``second``, from 4 on ``third``; 5 is of another ``op``.
    for epoch in (2, 3, 4, 5):
        manifest = made.manifest(epoch)
        name, since, was = {
            2: ("second", 1, "op"),
            3: ("second", 1, "op"),
            4: ("third", 3, "second"),
            5: ("op", 5, None),
        }[epoch]
        files = manifest.operators["op"].files
        mine = files[5:] if epoch == 5 else files
        named = with_operators(manifest, "op", name, since=since, was=was, files=mine)
        made.storage.put(made.paths.manifest(epoch), seal(named))

    found = rl.stores.touches(f"{flow.store}@4", "third", "a")
    other = rl.stores.touches(f"{flow.store}@5", "op", "a")

    assert [(t.first, t.last) for t in found] == [(e, e) for e in range(5)]
    assert [t.inputs["rows"].start for t in found if t.inputs] == [0, 1, 2, 3, 4]
    assert [(t.first, t.last) for t in other] == [(5, 5)]


@pytest.mark.parametrize("copy", [False, True])
def test_a_fork_knows_what_the_epochs_before_it_had_read(
    tmp_path: Path, *, copy: bool
) -> None:
    rows = [("a", n) for n in range(9)]
    flow = SmallFlow(tmp_path / "store", rows, tmp_path / "out")
    flow.run(3, epoch_rows=1)
    child, third = (
        SmallFlow(tmp_path / name, rows, tmp_path / f"{name}-out")
        for name in ("child", "third")
    )
    rl.stores.fork(f"{flow.store}@2", str(child.store), copy=copy)
    child.run(2, epoch_rows=1)
    rl.stores.fork(f"{child.store}@4", str(third.store), copy=copy)
    third.run(2, epoch_rows=1)
    flow.run(2, epoch_rows=2)  # is not what led to the fork

    found = rl.stores.touches(str(third.store), "op", "a")

    assert [(t.first, t.last) for t in found] == [(e, e) for e in range(7)]
    read = [(t.inputs["rows"].start, t.inputs["rows"].end) for t in found if t.inputs]
    assert read == [(e, e + 1) for e in range(7)]
    if copy:
        # Files and epochs are its own; what others had read is known to them alone.
        shutil.rmtree(child.store)
        alone = rl.stores.touches(str(third.store), "op", "a")
        assert [t.first for t in alone if t.inputs is None] == [0, 1, 2, 3, 4]
        assert [t.first for t in alone if t.inputs is not None] == [5, 6]


def test_only_files_that_can_hold_the_key_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(f"k{n % 40}", n) for n in range(120)]
    flow = SmallFlow(tmp_path / "store", rows, tmp_path / "out", parallelism=8)
    flow.run(3, epoch_rows=40)
    read: list[str] = []
    get = LocalStorage.get

    def seen(self: LocalStorage, path: str) -> bytes:
        read.append(path)
        return get(self, path)

    monkeypatch.setattr(LocalStorage, "get", seen)
    found = rl.stores.touches(str(flow.store), "op", "k7")

    assert [t.first for t in found] == [0, 1, 2]
    assert len([path for path in read if path.endswith(".parquet")]) == 3
