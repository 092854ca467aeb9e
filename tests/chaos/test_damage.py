"""Torn, flipped, missing and late files; lost and damaged working copies.

Rows 19 to 22 and 25 of the matrix: what a manifest refers to is right or refused by
name; what it does not refer to does not exist; a working copy is a cache.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos import oracle, worker_flow
from tests.chaos.worker_flow import Options

from riverlock.core.errors import SnapshotCorruptedError, SnapshotNotFoundError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import StateFile
from riverlock.snapshot.format.state_files import read_table
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.chaos, pytest.mark.spark]

Clone = Callable[..., Options]


def _catalog(options: Options) -> Catalog:
    return Catalog(LocalStorage(Path(options.store)))


def _a_state_file(options: Options) -> tuple[StateFile, Path]:
    newest = _catalog(options).newest()
    assert newest is not None
    file = newest.operators["track"].files[0]
    return file, Path(options.store) / file.path


def _truth(options: Options) -> dict[str, bytes]:
    """Return everything that a refused start must leave as it is.

    Two files say who started last, and are not of it: that of a sink, and the status.
    """
    roots = [Path(options.out), *(Path(options.store) / "regions/main").glob("[es]*")]
    return {
        str(p): p.read_bytes()
        for root in roots
        for p in root.rglob("*")
        if p.is_file() and p.name not in {"status.json", "run.json"}
    }


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _refuses(options: Options, spark: SparkSession, name: str) -> None:
    before = _truth(options)

    with pytest.raises(SnapshotCorruptedError) as caught:
        worker_flow.run(options, spark=spark)

    assert caught.value.path.endswith(name)
    after = _truth(options)
    assert before.items() <= after.items(), "something was overwritten"
    # Tasks that met no damage may have staged something; nobody refers to it.
    new = [Path(p).parts for p in after.keys() - before.keys()]
    assert not [parts for parts in new if not {"staged", "state"} & set(parts)]


def test_state_file_cut_at_any_length_is_refused_by_name(clone: Clone) -> None:
    options = clone()
    file, path = _a_state_file(options)
    whole = path.read_bytes()
    storage = LocalStorage(Path(options.store))

    for length in {*range(0, len(whole), 512), 1, len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(SnapshotCorruptedError) as caught:
            read_table(storage, file)
        assert caught.value.path == file.path


def test_state_file_with_any_byte_flipped_is_refused_by_name(clone: Clone) -> None:
    options = clone()
    file, path = _a_state_file(options)
    storage = LocalStorage(Path(options.store))

    for at in range(0, file.bytes, 37):
        _flip(path, at)
        with pytest.raises(SnapshotCorruptedError) as caught:
            read_table(storage, file)
        assert caught.value.path == file.path
        _flip(path, at)


def test_run_refuses_a_torn_state_file_and_overwrites_nothing(
    clone: Clone, spark: SparkSession
) -> None:
    options = clone()
    file, path = _a_state_file(options)
    os.truncate(path, 512)

    _refuses(options, spark, Path(file.path).name)
    problems = {e.epoch: e.problems for e in verify(_catalog(options))}
    assert all(any(file.path in p for p in found) for found in problems.values())


def test_run_refuses_a_missing_state_file_and_overwrites_nothing(
    clone: Clone, spark: SparkSession
) -> None:
    options = clone()
    file, path = _a_state_file(options)
    path.unlink()

    _refuses(options, spark, Path(file.path).name)


@pytest.mark.parametrize("which", ["newest manifest", "flow"])
def test_run_refuses_a_flipped_byte_in_its_records(
    clone: Clone, spark: SparkSession, which: str
) -> None:
    options = clone()
    epoch = _catalog(options).epochs()[-1]
    name = "flow.json" if which == "flow" else f"{epoch:012d}.json"
    path = next(p for p in Path(options.store).rglob(name) if "runs" not in p.parts)
    _flip(path, path.stat().st_size // 3)

    _refuses(options, spark, name)


def test_manifest_with_any_byte_flipped_is_refused(clone: Clone) -> None:
    options = clone()
    catalog = _catalog(options)
    epoch = catalog.epochs()[-1]
    path = Path(options.store) / catalog.paths.manifest(epoch)

    for at in range(0, path.stat().st_size, 7):
        _flip(path, at)
        with pytest.raises(SnapshotCorruptedError):
            catalog.manifest(epoch)
        _flip(path, at)


def test_older_epochs_are_offered_when_one_is_gone(clone: Clone) -> None:
    catalog = _catalog(clone())

    with pytest.raises(SnapshotNotFoundError, match="epochs 0 to 3"):
        catalog.manifest(99)


def test_files_of_dead_attempts_that_come_late_are_ignored_and_swept(
    clone: Clone, spark: SparkSession
) -> None:
    options = clone()
    newest = _catalog(options).newest()
    assert newest is not None
    _, path = _a_state_file(options)
    late = [
        # A delta of a committed epoch, of the next one, and a torn one.
        path.with_name(f"{newest.epoch:012d}-000001-track-00000-late0late0la.parquet"),
        path.with_name(
            f"{newest.epoch + 1:012d}-000001-track-00000-late1late1la.parquet"
        ),
    ]
    for each in late:
        shutil.copy(path, each)
    torn = path.with_name(
        f"{newest.epoch + 1:012d}-000001-track-00001-torntorntorn.parquet"
    )
    torn.write_bytes(path.read_bytes()[:700])
    staged = Path(options.out) / "events/_riverlock/staged"
    for epoch in (newest.epoch, newest.epoch + 1):
        folder = staged / f"{epoch:012d}" / newest.history[-1][1]
        folder.mkdir(parents=True)
        (folder / "000001-track-00000-late0late0la-00000").write_text('{"key":"no"}\n')
    half = Path(options.out) / "odd/_riverlock/building/dead/part-x.json"
    half.parent.mkdir(parents=True)
    half.write_text('{"key":"no"}\n')

    worker_flow.run(options, spark=spark)

    oracle.check(options)


def _copies(options: Options) -> list[Path]:
    return sorted(Path(options.store, ".working").rglob("data.mdb"))


def _lose(path: Path) -> None:
    shutil.rmtree(path.parent)


def _halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _scribble(path: Path) -> None:
    """Overwrite every page but the first two, which say where the others are."""
    chance = random.Random(7)
    data = bytearray(path.read_bytes())
    for page in range(2 * 4096, len(data), 4096):
        data[page : page + 4096] = chance.randbytes(4096)
    path.write_bytes(data)


def _scribble_all(path: Path) -> None:
    path.write_bytes(random.Random(8).randbytes(path.stat().st_size))


def _flip_bits(path: Path) -> None:
    """Flip a bit here and there: no page and hardly any value is spared."""
    data = bytearray(path.read_bytes())
    for at in range(2 * 4096, len(data), 97):
        data[at] ^= 0x01
    path.write_bytes(data)


def _unseal(path: Path) -> None:
    (path.parent / "seal.json").unlink()


DAMAGES = [_lose, _halve, _empty, _scribble, _scribble_all, _flip_bits, _unseal]


@pytest.mark.parametrize("damage", DAMAGES)
def test_working_copy_damaged_between_runs_is_rebuilt(
    clone: Clone, spark: SparkSession, damage: Callable[[Path], None]
) -> None:
    options = clone(with_copies=True, epoch_rows=400)
    for path in _copies(options):
        damage(path)

    worker_flow.run(options, spark=spark)

    oracle.check(options)


def test_redo_damaged_between_runs_is_not_believed(
    clone: Clone, spark: SparkSession
) -> None:
    options = clone(with_copies=True, epoch_rows=400)
    redo = sorted(Path(options.store, ".working").rglob("*.redo/*"))
    assert redo
    for number, path in enumerate(redo):
        if number % 2:
            _flip(path, path.stat().st_size // 2)
        else:
            os.truncate(path, path.stat().st_size // 2)

    worker_flow.run(options, spark=spark)

    oracle.check(options)


def test_working_copies_damaged_between_epochs_are_rebuilt(
    clone: Clone, spark: SparkSession
) -> None:
    options = clone(with_copies=True, rows=4_000)
    left = [_lose, _halve, _empty, _scribble_all, _unseal, _scribble, _flip_bits]
    done = []

    def after_epoch(status: Any) -> None:
        if left and status.state == "running":
            damage = left.pop(0)
            for path in _copies(options):
                damage(path)
            done.append(damage)

    worker_flow.run(options, spark=spark, on_status=after_epoch)

    assert len(done) == 7
    oracle.check(options)
