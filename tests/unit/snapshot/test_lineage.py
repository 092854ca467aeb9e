from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.snapshot.builders import catalog, manifest, write
from tests.unit.snapshot.small_flow import SmallFlow

import riverlock as rl
from riverlock.core.errors import SnapshotNotFoundError
from riverlock.snapshot.compaction import Compaction, compact
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
    store = LocalStorage(tmp_path / "s")
    made = catalog(store)
    files = [write(store, e, {"a": e} if e != 2 else {"b": 1}) for e in range(1, 5)]
    plan = Compaction(operator="op", files=tuple(files[:3]), drops_tombstones=True)
    merged = compact(store, made.paths, plan, now_us=0, pieces=[(0, 8)], attempt="c")
    made.decide(manifest(4, (*merged, files[3])))

    found = rl.stores.touches(f"{store.uri}@4", "op", "a")

    assert [(t.first, t.last) for t in found] == [(1, 3), (4, 4)]
    assert rl.stores.touches(f"{store.uri}@4", "op", "zzz") == []
    with pytest.raises(SnapshotNotFoundError):
        rl.stores.touches(f"{store.uri}@4", "nobody", "a")
