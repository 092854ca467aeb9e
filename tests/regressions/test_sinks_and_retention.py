"""Sinks and retention: holes found by a review before the release."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.unit.snapshot.builders import PATHS, catalog, manifest, write

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.builtin_committers import FileCommitter
from riverlock.connectors.builtin_stagers import FileStager
from riverlock.connectors.outputs import check_outputs
from riverlock.coordinator.events import Compacted
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    InvalidConfigError,
    SinkError,
    SnapshotNotFoundError,
)
from riverlock.driver.cleaner import Cleaner
from riverlock.sinks import files as file_sink
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.merged_files import note_merged
from riverlock.snapshot.format.records import (
    InputRange,
    Manifest,
    Merged,
    SinkOutput,
    StateFile,
)
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.retention.compaction import MAX_SPANS
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage import LocalStorage


def later() -> datetime:
    """Return a time past the grace period of what a test has just written."""
    return datetime.now(UTC) + timedelta(hours=1)


def test_null_and_empty_partition_values_can_be_committed(
    tmp_path: Path, store: LocalStorage
) -> None:
    out = tmp_path / "out"
    stager = FileStager(path=str(out), format="json", partition_by=("p",))
    committer = FileCommitter(file_sink(str(out), format="json", partition_by="p"))
    committer.open(Owner(flow="f", sink="s", run=1))
    table = pa.table({"p": pa.array([None, ""], pa.string()), "n": [1, 2]})
    point = StagePoint(storage=store, folder="staged", epoch=0, attempt="a")
    tokens = tuple(stager.stage(table, point))

    committer.commit(0, SinkOutput(kind="files", tokens=tokens, rows=2))

    lines = [p.read_text() for p in out.glob("epoch=*/**/*.json")]
    assert "".join(lines).count("\n") == 2


def test_nan_partition_values_can_be_committed(
    tmp_path: Path, store: LocalStorage
) -> None:
    out = tmp_path / "out"
    stager = FileStager(path=str(out), format="json", partition_by=("p",))
    committer = FileCommitter(file_sink(str(out), format="json", partition_by="p"))
    committer.open(Owner(flow="f", sink="s", run=1))
    table = pa.table({"p": [float("nan"), float("nan")], "n": [1, 2]})
    point = StagePoint(storage=store, folder="staged", epoch=0, attempt="a")
    tokens = tuple(stager.stage(table, point))

    committer.commit(0, SinkOutput(kind="files", tokens=tokens, rows=2))


def _stage(out: Path, store: LocalStorage, epoch: int, *names: str) -> tuple[Any, ...]:
    """Stage one row for each name: what an epoch of so many tasks does."""
    stager = FileStager(path=str(out), format="json", partition_by=())
    return tuple(
        token
        for name in names
        for token in stager.stage(
            pa.table({"n": [name]}),
            StagePoint(storage=store, folder="staged", epoch=epoch, attempt=name),
        )
    )


def _committer(out: Path, run: int = 1) -> FileCommitter:
    committer = FileCommitter(file_sink(str(out), format="json"))
    committer.open(Owner(flow="f", sink="s", run=run))
    return committer


def _output(tokens: tuple[Any, ...]) -> SinkOutput:
    return SinkOutput(kind="files", tokens=tokens, rows=len(tokens))


def test_an_epoch_decided_with_one_name_twice_is_committed(
    tmp_path: Path, store: LocalStorage
) -> None:
    out = tmp_path / "out"
    tokens = tuple({**t, "name": "p=x/a.json"} for t in _stage(out, store, 0, "a", "b"))
    committer = _committer(out)

    committer.commit(0, _output(tokens))

    record = json.loads((out / "_riverlock/000000000000.json").read_text())
    listed = [(out / f["path"]).read_text() for f in record["files"]]
    assert listed == ['{"n":"a"}\n', '{"n":"b"}\n']


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_run_that_slept_while_building_shows_no_part_of_an_epoch(
    tmp_path: Path,
    store: LocalStorage,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
    nth: int,
) -> None:
    out = tmp_path / "out"
    output = _output(_stage(out, store, 0, "a", "b"))
    old = _committer(out)
    real, calls = os.link, 0

    def link(source: Any, target: Any) -> None:
        nonlocal calls
        if "building" in str(target):
            calls += 1
            if calls == nth:
                new = _committer(out, run=2)
                if is_committed:
                    new.commit(0, output)
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(SinkError) as caught:
        old.commit(0, output)
    assert not isinstance(caught.value, CommitRejectedError)
    assert (out / "epoch=000000000000").exists() == is_committed

    with pytest.raises(FencedError):
        old.commit(0, output)
    _committer(out, run=3).commit(0, output)

    assert len(list((out / "epoch=000000000000").iterdir())) == 2
    assert not list((out / "_riverlock").glob("building*/*"))


def test_a_folder_that_lost_a_file_is_not_shown(
    tmp_path: Path, store: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    output = _output(_stage(out, store, 0, "a", "b"))
    committer = _committer(out)
    real = os.link

    def link(source: Any, target: Any) -> None:
        real(source, target)
        if "building" in str(target) and "part-a" in str(target):
            Path(target).unlink()

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(SinkError):
        committer.commit(0, output)
    monkeypatch.undo()

    assert not (out / "epoch=000000000000").exists()
    committer.commit(0, output)
    assert len(list((out / "epoch=000000000000").iterdir())) == 2


def test_an_epoch_is_completed_in_the_directory_it_was_decided_to_go_to(
    tmp_path: Path, store: LocalStorage
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    _committer(a)
    output = _output(_stage(a, store, 0, "x", "y"))

    for _ in range(2):
        _committer(b, run=2).commit(0, output)

    assert len(list((a / "epoch=000000000000").iterdir())) == 2
    assert not list(b.glob("epoch=*"))
    assert not [p for p in (a / "_riverlock/staged").rglob("*") if p.is_file()]


def test_an_epoch_goes_with_a_directory_that_was_moved(
    tmp_path: Path, store: LocalStorage
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    _committer(a)
    first = _output(_stage(a, store, 0, "x"))
    _committer(a).commit(0, first)
    second = _output(_stage(a, store, 1, "x"))
    a.rename(b)
    moved = _committer(b, run=2)

    moved.commit(0, first)
    moved.commit(1, second)

    assert len(list(b.glob("epoch=*/*.json"))) == 2
    assert not a.exists()


@pytest.mark.parametrize("how", ["removed", "taken by another store"])
def test_an_epoch_whose_directory_is_gone_says_what_to_do(
    tmp_path: Path, store: LocalStorage, how: str
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    _committer(a)
    output = _output(_stage(a, store, 0, "x"))
    shutil.rmtree(a)
    if how != "removed":
        other = FileCommitter(file_sink(str(a), format="json"))
        other.open(Owner(flow="another", sink="s", run=1))
        other.commit(0, _output(_stage(a, store, 0, "z")))
    committer = _committer(b)
    given_up = b / "_riverlock/000000000000.json"

    with pytest.raises(CommitRejectedError, match=str(given_up)):
        committer.commit(0, output)
    given_up.touch()
    committer.commit(0, output)


def test_tokens_without_a_root_are_those_of_the_sink(
    tmp_path: Path, store: LocalStorage
) -> None:
    out = tmp_path / "out"
    committer = _committer(out)
    tokens = _stage(out, store, 0, "x")
    for token in tokens:
        del token["root"]

    committer.commit(0, _output(tokens))

    assert len(list(out.glob("epoch=*/*.json"))) == 1


def test_a_sink_of_another_kind_needs_another_uid() -> None:
    outputs = {"out": SinkOutput(kind="memory"), "gone": SinkOutput(kind="files")}
    newest = msgspec.structs.replace(manifest(3), outputs=outputs)

    check_outputs(newest, {"out": "memory", "new": "console"})
    with pytest.raises(InvalidConfigError, match="another uid") as caught:
        check_outputs(newest, {"out": "files"})

    for word in ("'out'", "'memory'", "'files'"):
        assert word in str(caught.value)


@pytest.mark.spark
def test_the_directory_of_a_sink_can_change_between_runs(
    spark: Any, tmp_path: Path
) -> None:
    def flow(rows: int, path: str) -> rl.Flow:
        made = rl.Flow("moved", key_groups=4)
        numbers = made.read(rl.sources.generator({"k": "id"}, rows=rows), uid="in")
        sink = rl.sinks.files(str(tmp_path / path), format="json")
        numbers.write(sink, uid="out")
        return made

    for rows, path in ((1, "a"), (2, "b")):
        flow(rows, path).run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert len(list((tmp_path / "b").glob("epoch=*/*.json"))) == 1


def test_the_sweep_spares_files_of_an_epoch_that_is_not_decided_yet(
    store: LocalStorage,
) -> None:
    found = catalog(store)
    decided = write(store, 1, {"a": 1})
    found.decide(manifest(1, (decided,)))
    running = write(store, 2, {"a": 2})  # an epoch longer than the grace period

    sweep(found, Retention(), now=later())

    assert store.exists(running.path)


def _listed(epoch: int, first: str | None, last: str) -> Manifest:
    """Return a manifest whose input starts and ends with these lists."""
    inputs = {
        "in": InputRange(start={"base": first}, end={"base": last}),
        "other": InputRange(start=0, end=7),
    }
    return msgspec.structs.replace(manifest(epoch), inputs=inputs)


def _put_list(store: LocalStorage, number: int) -> str:
    body = b"[%d]" % number
    path = f"{PATHS.sources}in/{number:012d}-{checksum(body)}.json"
    store.put(path, body)
    return path


def test_files_of_an_epoch_that_died_undecided_go_in_the_end(
    store: LocalStorage,
) -> None:
    found = catalog(store)
    found.decide(manifest(1))
    keep = Retention(grace=timedelta(days=3))
    for days, kept, gone in (
        (0.9, Retention(), False),
        (1.1, Retention(), True),
        (2.9, keep, False),
        (3.1, keep, True),
    ):
        dead = write(store, 2, {"a": 2})
        sweep(found, kept, now=datetime.now(UTC) + timedelta(days=days))
        assert store.exists(dead.path) != gone


def test_merged_files_that_wait_are_spared_by_any_sweep(store: LocalStorage) -> None:
    """Also by that of another process, such as a run that was paused."""
    found = catalog(store)
    live = write(store, 5, {"a": 1})
    found.decide(manifest(5, (live,)))
    one, two = write(store, 1, {"a": 1}), write(store, 2, {"a": 1})
    merged = Merged(operator="op", replaced=(live.path,), by=(one,))
    record = note_merged(found, merged)
    assert record is not None

    sweep(found, Retention(), now=later())

    assert store.exists(one.path)
    assert not store.exists(two.path)
    # The next epoch does without: it will never be taken up.
    found.decide(manifest(6, (write(store, 6, {"a": 1}),)))
    sweep(found, Retention(), now=later())
    assert not store.exists(one.path)
    assert not store.exists(record)


def test_merged_files_that_were_swept_before_they_were_noted_are_not_taken(
    store: LocalStorage,
) -> None:
    found = catalog(store)
    live, one = write(store, 5, {"a": 1}), write(store, 1, {"a": 1})
    found.decide(manifest(5, (live,)))
    store.delete(one.path)

    merged = Merged(operator="op", replaced=(live.path,), by=(one,))

    assert note_merged(found, merged) is None
    assert list(store.list(found.paths.merged)) == []


def test_lists_of_sources_go_with_the_manifests_that_name_them(
    store: LocalStorage,
) -> None:
    found = catalog(store)
    lists = [_put_list(store, n) for n in range(4)]
    found.decide(_listed(1, None, lists[0]))
    found.decide(_listed(2, lists[0], lists[1]))
    found.decide(_listed(3, lists[1], lists[2]))
    assert sweep(found, Retention(epochs=1), now=later()) == 2
    # Those that nothing names may be of the epoch under way, so they stay for long.
    assert all(store.exists(path) for path in lists)

    sweep(found, Retention(epochs=1), now=later() + timedelta(days=1))

    assert [store.exists(path) for path in lists] == [False, True, True, False]
    assert all(r.is_whole for r in verify(found))


@pytest.mark.parametrize("how", ["altered", "gone"])
def test_verify_looks_at_the_lists_of_sources(store: LocalStorage, how: str) -> None:
    found = catalog(store)
    whole, damaged = _put_list(store, 1), _put_list(store, 2)
    found.decide(_listed(1, None, whole))
    found.decide(_listed(2, whole, damaged))
    assert all(r.is_whole for r in verify(found))
    if how == "altered":
        store.put(damaged, b"[]")
    else:
        store.delete(damaged)

    one, two = verify(found)

    assert one.is_whole
    assert damaged in two.problems[0]


class Pinning(LocalStorage):
    """Has an epoch pinned while a sweep deletes it, at different moments.

    Before the sweep has announced it, before it deletes the manifest, or after that.
    """

    when = ""
    error: Exception | None = None

    def put(self, path: str, data: bytes) -> None:
        # A round announces itself, and then what it will delete.
        if "/expiring/" in path and self.when == "unannounced" and self.exists(path):
            self._pin()
        with self._pinned_beside(path):
            super().put(path, data)  # closes a number that a sleeping run may want

    def delete(self, path: str) -> None:
        with self._pinned_beside(path):
            super().delete(path)

    @contextmanager
    def _pinned_beside(self, path: str) -> Iterator[None]:
        is_first = path.endswith("epochs/000000000001.json")
        if is_first and self.when == "before":
            self._pin()
        yield
        if is_first and self.when == "after":
            self._pin()

    def _pin(self) -> None:
        try:
            Catalog(LocalStorage(self.root)).pin("v1", epoch=1, now_us=0)
        except SnapshotNotFoundError as error:
            object.__setattr__(self, "error", error)


@pytest.mark.parametrize("when", ["unannounced", "before", "after"])
def test_an_epoch_that_is_pinned_while_it_is_swept_is_whole_or_refused(
    store: LocalStorage, when: str
) -> None:
    slow = Pinning(store.root)
    object.__setattr__(slow, "when", when)
    found = catalog(slow)
    for epoch in (1, 2, 3):
        found.decide(manifest(epoch, (write(store, epoch, {"a": epoch}),)))

    sweep(found, Retention(epochs=1), now=later())

    if when == "unannounced":
        assert slow.error is None
        assert found.resolve("v1").epoch == 1
        assert found.epochs() == [1, 3]
    else:
        assert slow.error is not None
        assert found.snapshots() == []
        assert found.epochs() == [3]
    assert all(r.is_whole for r in verify(found))


def test_an_epoch_that_lost_a_file_is_not_pinned(store: LocalStorage) -> None:
    found = catalog(store)
    file = write(store, 1, {"a": 1})
    found.decide(manifest(1, (file,)))
    store.delete(file.path)

    with pytest.raises(SnapshotNotFoundError, match=file.path):
        found.pin("v1", epoch=1, now_us=0)

    assert found.snapshots() == []


def test_short_runs_sweep_too(store: LocalStorage) -> None:
    found = catalog(store)
    live = write(store, 2, {"a": 1})
    orphan = write(store, 1, {"a": 0})
    newest = manifest(2, (live,))
    found.decide(newest)
    os.utime(store.root / orphan.path, (0, 0))
    for _ in range(20):  # runs of one epoch each, as from cron with available_now
        cleaner = Cleaner(found, Retention(epochs=1))
        cleaner.offer(newest)
        cleaner.stop()

    assert not store.exists(orphan.path)


def test_a_busy_cleaner_goes_on_with_the_newest_manifest(store: LocalStorage) -> None:
    seen: list[int] = []
    is_busy, may_go_on = threading.Event(), threading.Event()

    class Slow(Cleaner):
        def clean(self, manifest: Any) -> None:
            seen.append(manifest.epoch)
            is_busy.set()
            may_go_on.wait()

    cleaner = Slow(catalog(store), Retention())
    cleaner.offer(manifest(1))
    is_busy.wait()
    for epoch in (2, 3, 4):
        cleaner.offer(manifest(epoch))
    may_go_on.set()
    cleaner.stop()

    assert seen == [1, 4]


def _spans(store: LocalStorage, last: int) -> tuple[StateFile, ...]:
    """Return so many small files that a compaction is due."""
    return tuple(write(store, n, {"a": n}) for n in range(1, last + 1))


def _results(cleaner: Cleaner) -> list[Compacted]:
    found = []
    while not cleaner.results.empty():
        found.append(cleaner.results.get())
    return found


def test_merged_files_that_wait_for_their_manifest_are_spared(
    store: LocalStorage,
) -> None:
    found = catalog(store)
    files = _spans(store, MAX_SPANS + 1)
    newest = manifest(MAX_SPANS + 1, files)
    found.decide(newest)
    cleaner = Cleaner(found, Retention(grace=timedelta(0)))

    cleaner.clean(newest)  # sweeps at once, and without a grace period
    (result,) = _results(cleaner)
    assert all(store.exists(f.path) for f in result.by)

    cleaner.clean(newest)
    assert _results(cleaner) == []  # the first result is still on its way

    taken = manifest(newest.epoch + 1, result.by)
    found.decide(taken)
    cleaner.clean(taken)
    assert cleaner._pending == {}


def test_merged_files_that_were_not_taken_are_made_again(store: LocalStorage) -> None:
    found = catalog(store)
    files = _spans(store, MAX_SPANS + 1)
    cleaner = Cleaner(found, Retention(grace=timedelta(0)))
    made = []
    for epoch in range(20, 24):
        newest = manifest(epoch, files)
        found.decide(newest)
        cleaner.clean(newest)
        made.append(len(_results(cleaner)))

    # Epoch 21 may have been sealed before the result came, epoch 22 was not.
    assert made == [1, 0, 1, 0]


def test_the_sweep_comes_back_every_ten_epochs(
    store: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[int] = []
    cleaner = Cleaner(catalog(store), Retention())
    now = 0
    monkeypatch.setattr(
        "riverlock.driver.cleaner.sweep", lambda *a, **k: swept.append(now)
    )

    for now in (5, 6, 14, 15, 24, 26, 27):
        cleaner.clean(manifest(now))

    assert swept == [5, 15, 26]


def test_partition_values_that_no_folder_can_hold_are_refused_when_staged(
    tmp_path: Path, store: LocalStorage
) -> None:
    stager = FileStager(path=str(tmp_path), format="json", partition_by=("p",))
    point = StagePoint(storage=store, folder="staged", epoch=0, attempt="a")
    table = pa.table({"p": ["x" * 300], "n": [1]})

    with pytest.raises(SinkError, match="partition by something shorter"):
        stager.stage(table, point)
