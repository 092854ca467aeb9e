"""Which numbers stay taken, and how they are told from epochs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.unit.snapshot.builders import catalog, manifest, write

from riverlock.core.errors import SnapshotCorruptedError, SnapshotNotFoundError
from riverlock.snapshot import claims
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.closed_numbers import CLOSED
from riverlock.snapshot.format.records import Run
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage import LocalStorage

TIGHT = Retention(epochs=1, grace=timedelta(0))
LATER = datetime(2200, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(claims, "_is_alive", lambda *_: False)
    return catalog(LocalStorage(tmp_path / "store"))


def decide(store: Catalog, run: Run, epochs: range) -> None:
    for epoch in epochs:
        newest = store.newest()
        history = () if newest is None else newest.history
        if not history or history[-1][1] != run.token:
            history = (*history, (epoch, run.token))
        made = msgspec.structs.replace(manifest(epoch), run=run.run, history=history)
        assert store.decide(made)


def closed(store: Catalog) -> list[int]:
    listed = store.storage.list(store.paths.epochs)
    return [int(Path(e.path).stem) for e in listed if e.size == len(CLOSED)]


def test_runs_that_end_leave_no_number_behind(store: Catalog) -> None:
    for first in (1, 4, 7):
        run = claims.claim(store, now_us=1)
        assert run.is_alone
        decide(store, run, range(first, first + 3))
        claims.release(store, run)

    sweep(store, TIGHT, now=LATER)

    assert store.epochs() == [9]
    assert closed(store) == []


def test_a_run_that_may_sleep_finds_its_number_taken(store: Catalog) -> None:
    decide(store, claims.claim(store, now_us=1), range(1, 6))
    decide(store, claims.claim(store, now_us=1), range(6, 12))

    sweep(store, TIGHT, now=LATER)

    assert store.epochs() == [11]
    # An older run that wins, the number itself, and one more: of state rewritten.
    assert closed(store) == [5, 6, 7]
    assert not store.decide(manifest(6))
    with pytest.raises(SnapshotNotFoundError):
        store.manifest(6)


def test_a_run_is_alone_again_when_the_one_before_has_decided(store: Catalog) -> None:
    first = claims.claim(store, now_us=1)
    decide(store, first, range(1, 2))
    idle = claims.claim(store, now_us=1)  # the first may sleep
    claims.release(store, idle)
    third = claims.claim(store, now_us=1)  # and still may: nobody decided since
    decide(store, third, range(2, 3))
    claims.release(store, third)
    fourth = claims.claim(store, now_us=1)

    alone = [r.is_alone for r in (first, idle, third, fourth)]
    assert alone == [True, False, False, True]


def test_files_of_a_run_that_may_sleep_stay_until_another_has_decided(
    store: Catalog, tmp_path: Path
) -> None:
    run = claims.claim(store, now_us=1)
    decide(store, run, range(1, 3))
    under_way = write(LocalStorage(tmp_path / "store"), 3, {"a": 1})
    claims.claim(store, now_us=1)

    sweep(store, TIGHT, now=LATER)
    assert store.storage.exists(under_way.path)

    decide(store, claims.claim(store, now_us=1), range(3, 4))
    sweep(store, TIGHT, now=LATER)
    assert not store.storage.exists(under_way.path)


def test_a_newest_manifest_that_was_cut_is_not_taken_for_a_closed_number(
    store: Catalog,
) -> None:
    decide(store, claims.claim(store, now_us=1), range(1, 3))
    path = store.paths.manifest(2)
    store.storage.put(path, store.storage.get(path)[: len(CLOSED)])

    assert store.epochs() == [1, 2]
    with pytest.raises(SnapshotCorruptedError):
        store.newest()
