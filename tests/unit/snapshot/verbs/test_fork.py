from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from stat import S_ISDIR

import msgspec
import pytest
from tests.unit.snapshot.builders import as_dict, catalog, manifest, write
from tests.unit.snapshot.killing import beside, killed_at
from tests.unit.snapshot.small_flow import SmallFlow, output_of, state_of

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, SnapshotNotFoundError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Manifest, OperatorState, StateFile
from riverlock.snapshot.retention.compaction import choose, compact
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.state_reader import read_entries
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage import LocalStorage

ROWS = [(f"k{n * 7 % 5}", n % 11) for n in range(24)]
OTHERS = [(f"k{n * 3 % 7}", n % 5) for n in range(12, 30)]
TIGHT = Retention(epochs=1, grace=timedelta(0))


def age(*places: Path) -> None:
    for place in places:
        for file in place.rglob("*"):
            os.utime(file, (1, 1))


def check_whole(*flows: SmallFlow) -> None:
    for flow in flows:
        assert [r.problems for r in verify(flow.catalog) if not r.is_whole] == []


@pytest.fixture
def parent(tmp_path: Path) -> SmallFlow:
    """Four epochs of three rows each."""
    flow = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out")
    flow.run(4)
    return flow


@pytest.fixture
def child(tmp_path: Path) -> SmallFlow:
    rows = [*ROWS[:12], *OTHERS]
    return SmallFlow(tmp_path / "fork", rows, tmp_path / "fork-out")


def forked(parent: SmallFlow, child: SmallFlow, **options: bool) -> None:
    rl.stores.fork(f"{parent.store}@3", str(child.store), **options)


@pytest.mark.parametrize("copy", [False, True])
def test_parent_and_fork_go_on_each_by_itself(
    parent: SmallFlow, child: SmallFlow, *, copy: bool
) -> None:
    forked(parent, child, copy=copy)

    assert list(child.store.rglob("*.parquet")) == [] or copy
    assert child.state() == state_of(ROWS[:12])
    parent.run(retention=TIGHT)
    child.run(retention=TIGHT)
    age(parent.store, child.store)
    sweep(parent.catalog, TIGHT)
    sweep(child.catalog, TIGHT)
    assert parent.state() == state_of(parent.rows)
    assert child.state() == state_of(child.rows)
    assert parent.output() == output_of(parent.rows)
    assert child.output() == output_of(child.rows) - output_of(ROWS[:12])
    check_whole(parent, child)
    origin = child.catalog.flow().origin
    assert origin is not None
    assert (origin.flow, origin.epoch) == (parent.catalog.flow().id, 3)
    assert len(rl.stores.forks(str(parent.store))) == (0 if copy else 1)
    if copy:
        shutil.rmtree(parent.store)
        check_whole(child)


@pytest.mark.parametrize("copy", [False, True])
def test_all_of_a_fork_is_on_disk_before_it_is_a_store(
    parent: SmallFlow,
    child: SmallFlow,
    monkeypatch: pytest.MonkeyPatch,
    *,
    copy: bool,
) -> None:
    synced: set[tuple[int, int]] = set()
    not_yet: list[Path] = []
    sync, put = LocalStorage._sync, LocalStorage.put_if_absent

    def seen(self: LocalStorage, descriptor: int) -> None:
        sync(self, descriptor)
        stat = os.fstat(descriptor)
        # Of a directory: with so many entries.
        size = len(os.listdir(descriptor)) if S_ISDIR(stat.st_mode) else stat.st_size
        synced.add((stat.st_ino, size))

    def checked(self: LocalStorage, path: str, data: bytes) -> bool:
        if path == "flow.json":
            for place in (child.store, *child.store.rglob("*")):
                stat = place.stat()
                entries = list(place.iterdir()) if place.is_dir() else None
                size = stat.st_size if entries is None else len(entries)
                if place.name != ".tmp" and (stat.st_ino, size) not in synced:
                    not_yet.append(place)
        return put(self, path, data)

    monkeypatch.setattr(LocalStorage, "_sync", seen)
    monkeypatch.setattr(LocalStorage, "put_if_absent", checked)
    forked(parent, child, copy=copy)

    assert not_yet == []
    assert len(list(child.store.rglob("*.parquet"))) == (4 if copy else 0)


def test_a_fork_of_a_fork_needs_both(
    parent: SmallFlow, child: SmallFlow, tmp_path: Path
) -> None:
    forked(parent, child)
    child.run(1)
    grandchild = SmallFlow(tmp_path / "third", child.rows, tmp_path / "third-out")

    rl.stores.fork(f"{child.store}@4", str(grandchild.store))

    shutil.rmtree(child.store / "parents")  # only our own record leads there
    assert grandchild.state() == state_of(child.rows[:15])
    assert len(rl.stores.forks(str(parent.store))) == 2
    assert len(rl.stores.forks(str(child.store))) == 1
    check_whole(grandchild)


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("point", ["V1", "V2", "V3"])
def test_a_fork_that_is_killed_is_gone_on_with(
    parent: SmallFlow, child: SmallFlow, point: str, *, copy: bool
) -> None:
    assert killed_at(point, lambda: forked(parent, child, copy=copy))
    with pytest.raises(SnapshotNotFoundError):
        child.catalog.flow()

    forked(parent, child, copy=copy)

    assert child.state() == state_of(ROWS[:12])
    assert len(rl.stores.forks(str(parent.store))) == (0 if copy else 1)
    assert parent.state() == state_of(ROWS[:12])
    check_whole(parent, child)
    with pytest.raises(InvalidConfigError, match="a store"):
        forked(parent, child, copy=copy)


def test_a_place_that_is_not_empty_is_refused(
    parent: SmallFlow, child: SmallFlow
) -> None:
    child.store.mkdir()
    (child.store / "mine.txt").write_text("precious")

    with pytest.raises(InvalidConfigError, match="an empty place"):
        forked(parent, child)

    assert rl.stores.forks(str(parent.store)) == []
    assert [p.name for p in child.store.iterdir()] == ["mine.txt"]


def test_the_fork_of_an_epoch_that_is_gone_leaves_no_pin(
    parent: SmallFlow, child: SmallFlow
) -> None:
    path = parent.catalog.manifest(3).operators["op"].files[0].path
    (parent.store / path).unlink()

    with pytest.raises(SnapshotNotFoundError, match="epoch 3"):
        forked(parent, child)

    assert rl.stores.forks(str(parent.store)) == []
    with pytest.raises(SnapshotNotFoundError):
        child.catalog.flow()


def test_a_fork_that_was_deleted_can_be_forgotten(
    parent: SmallFlow, child: SmallFlow
) -> None:
    forked(parent, child)
    (record,) = rl.stores.forks(str(parent.store))
    shutil.rmtree(child.store)

    rl.stores.forget_fork(str(parent.store), record.flow)

    assert rl.stores.forks(str(parent.store)) == []
    with pytest.raises(SnapshotNotFoundError):
        rl.stores.forget_fork(str(parent.store), record.flow)


def lets_go(flow: SmallFlow) -> None:
    """Decide an epoch without files of those before, and keep that one only."""
    store = flow.catalog
    newest = store.resolve(None)
    states = {
        uid: msgspec.structs.replace(s, files=()) for uid, s in newest.operators.items()
    }
    made = msgspec.structs.replace(newest, epoch=newest.epoch + 1, operators=states)
    assert store.decide(made)
    age(flow.store)
    sweep(store, TIGHT)


@pytest.mark.parametrize("first", ["fork", "copy"])
def test_a_fork_and_a_copy_of_it_hold_their_parent_each_by_itself(
    parent: SmallFlow, child: SmallFlow, tmp_path: Path, first: str
) -> None:
    forked(parent, child)
    shutil.copytree(child.store, tmp_path / "copy")
    copy = SmallFlow(tmp_path / "copy", child.rows, tmp_path / "copy-out")
    sweep(copy.catalog, TIGHT)  # as its first epoch does

    done, other = (child, copy) if first == "fork" else (copy, child)
    lets_go(done)
    lets_go(parent)

    check_whole(other)
    lets_go(other)
    assert list(parent.catalog.storage.list("forks/")) == []


def test_two_that_fork_into_one_place_make_one_fork(
    parent: SmallFlow, child: SmallFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_if_absent = LocalStorage.put_if_absent

    def slow(self: LocalStorage, path: str, data: bytes) -> bool:
        if path == "fork.json":
            monkeypatch.setattr(LocalStorage, "put_if_absent", put_if_absent)
            assert killed_at("V1", lambda: forked(parent, child))
        return put_if_absent(self, path, data)

    monkeypatch.setattr(LocalStorage, "put_if_absent", slow)
    forked(parent, child)

    check_whole(child)
    assert len(list(parent.catalog.storage.list("forks/"))) == 1


class Line:
    """A store that gets one epoch after the other: no tasks, no loop."""

    def __init__(self, store: Catalog) -> None:
        newest = store.newest()
        self.store, self.flow = store, store.flow().id
        self.files = () if newest is None else newest.operators["op"].files
        self.epoch = 0 if newest is None else newest.epoch
        self.truth: dict[str, int | None] = {}

    def step(self, keep: Retention) -> None:
        """Add an epoch, compact what is due, and delete what is old."""
        self.epoch += 1
        changed: dict[str, int | None] = {f"k{self.epoch % 7}": self.epoch}
        self.truth |= changed
        made = write(self.store.storage, self.epoch, changed)  # type: ignore[arg-type]
        self.files = self.compacted((*self.files, made))
        first: Manifest = manifest(self.epoch, self.files)
        assert self.store.decide(msgspec.structs.replace(first, flow=self.flow))
        if self.epoch % 10 == 0:
            sweep(self.store, keep)

    def compacted(self, files: tuple[StateFile, ...]) -> tuple[StateFile, ...]:
        state = OperatorState(keys="k string", variables={}, files=files)
        plan = choose("op", state)
        if plan is None:
            return files
        made = compact(
            self.store.storage,
            self.store.paths,
            plan,
            now_us=0,
            pieces=[(0, 8)],
            attempt=f"c-{self.epoch}",
        )
        return (*(f for f in files if f not in plan.files), *made)

    def check(self) -> None:
        assert [r.problems for r in verify(self.store) if not r.is_whole] == []
        state = self.store.resolve(None).operators["op"]
        found = read_entries(self.store.storage, state, now_us=0)
        assert found is not None
        assert as_dict(found) == self.truth


@pytest.mark.parametrize(
    "epochs", [150, pytest.param(1000, marks=pytest.mark.slow, id="a-thousand")]
)
def test_parent_and_fork_side_by_side(tmp_path: Path, epochs: int) -> None:
    keep = Retention(epochs=3, grace=timedelta(0))
    first = Line(catalog(LocalStorage(tmp_path / "store")))
    for _ in range(20):
        first.step(keep)
    rl.stores.fork(str(tmp_path / "store"), str(tmp_path / "fork"))
    second = Line(Catalog(LocalStorage(tmp_path / "fork")))
    second.truth = dict(first.truth)
    pinned: list[bool] = []

    for number in range(epochs):
        first.step(keep)
        second.step(keep)
        if number % 50 == 49:
            first.check()
            second.check()
            pinned.append(bool(rl.stores.forks(str(tmp_path / "store"))))

    # The fork has compacted the files of its parent away, and let them go.
    assert pinned[-1] is False
    newest = 20 + epochs
    assert first.store.epochs() == list(range(newest - 2, newest + 1))
    assert second.store.epochs() == list(range(newest - 2, newest + 1))
    left = list((tmp_path / "store").rglob("*.parquet"))
    assert len(left) < 60


@pytest.mark.parametrize(
    "epochs", [16, pytest.param(1000, marks=pytest.mark.slow, id="a-thousand")]
)
def test_parent_and_fork_run_at_the_same_time(tmp_path: Path, epochs: int) -> None:
    """Two processes with loops, tasks, sinks and cleaners of their own."""
    rows = [(f"k{n * 7 % 23}", n % 11) for n in range(epochs + 10)]
    parent = SmallFlow(tmp_path / "store", rows, tmp_path / "out")
    parent.run(10, epoch_rows=1)
    others = [*rows[:10], *((f"k{n * 3 % 29}", n % 5) for n in range(epochs))]
    child = SmallFlow(tmp_path / "fork", others, tmp_path / "fork-out", parallelism=2)
    rl.stores.fork(str(parent.store), str(child.store))

    def go_on(flow: SmallFlow) -> None:
        while flow.catalog.resolve(None).inputs["rows"].end < len(flow.rows):
            # Lives of drivers that are short: each begins with a sweep.
            flow.run(8, epoch_rows=1, retention=TIGHT)
            check_whole(flow)

    process = beside(lambda: go_on(child))
    go_on(parent)
    assert os.waitpid(process, 0)[1] == 0

    for flow in (child, parent):  # the fork may let go of what its parent holds
        sweep(flow.catalog, TIGHT)
        assert flow.state() == state_of(flow.rows)
    check_whole(parent, child)
    assert parent.output() == output_of(rows)
    assert child.output() == output_of(others) - output_of(rows[:10])
    assert parent.catalog.resolve(None).epoch == epochs + 9
    # The epoch that was forked is held as long as the fork has files of it.
    forked = {r.epoch for r in rl.stores.forks(str(parent.store))}
    assert set(parent.catalog.epochs()) == {epochs + 9, *forked}
