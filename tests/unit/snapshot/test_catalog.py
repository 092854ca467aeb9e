from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.unit.snapshot.builders import GROUPS, catalog, manifest, write

from riverlock.core.errors import (
    InvalidConfigError,
    InvalidFlowError,
    SnapshotCorruptedError,
    SnapshotNotFoundError,
    UnsupportedFormatError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import Run, StateFile, Stop
from riverlock.snapshot.format.requests import add_request
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.state_reader import operator_of, read_entries, read_variable
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage import LocalStorage

NOW = datetime.now(UTC)


def test_flow_is_made_once_and_belongs_to_its_name(store: LocalStorage) -> None:
    made = Catalog(store).open_flow("shop", key_groups=8, now_us=1)

    assert Catalog(store).open_flow("shop", key_groups=8, now_us=2) == made
    with pytest.raises(InvalidConfigError, match="flow 'shop'"):
        Catalog(store).open_flow("other", key_groups=8, now_us=2)
    with pytest.raises(InvalidConfigError, match="key_groups"):
        Catalog(store).open_flow("shop", key_groups=9, now_us=2)


def test_flow_of_a_newer_format_is_refused(store: LocalStorage) -> None:
    flow = catalog(store).flow()
    store.put("flow.json", seal(msgspec.structs.replace(flow, format=99)))

    with pytest.raises(UnsupportedFormatError):
        Catalog(store).flow()


def test_directory_without_a_flow_is_no_store(store: LocalStorage) -> None:
    with pytest.raises(SnapshotNotFoundError, match=r"flow\.json"):
        Catalog(store).flow()


def test_epoch_is_decided_once(store: LocalStorage) -> None:
    found = catalog(store)
    assert found.newest() is None

    assert found.decide(manifest(1))
    assert not found.decide(manifest(1))

    assert found.epochs() == [1]
    assert found.newest() == manifest(1)
    with pytest.raises(SnapshotNotFoundError, match=r"which has epoch 1$"):
        found.manifest(7)


def test_flipped_byte_in_a_manifest_is_noticed(store: LocalStorage) -> None:
    found = catalog(store)
    found.decide(manifest(1))
    path = found.paths.manifest(1)
    store.put(path, store.get(path).replace(b'"epoch":1', b'"epoch":2'))

    with pytest.raises(SnapshotCorruptedError):
        found.manifest(1)


def test_run_number_has_one_owner(store: LocalStorage) -> None:
    found = catalog(store)
    first = Run(run=1, host="a", pid=1, token="a", started_us=0)

    assert found.newest_run() is None
    assert found.claim(first)
    assert not found.claim(Run(run=1, host="b", pid=2, token="b", started_us=0))
    assert (found.newest_run(), found.run(2)) == (first, None)


def test_names_pin_epochs(store: LocalStorage) -> None:
    found = catalog(store)
    found.decide(manifest(1))
    found.decide(manifest(2))
    found.pin("v1", epoch=1, now_us=5, note="before the move")

    assert found.resolve("v1").epoch == 1
    assert (found.resolve(2).epoch, found.resolve("2").epoch) == (2, 2)
    assert found.resolve(None).epoch == 2
    with pytest.raises(InvalidConfigError, match="new name"):
        found.pin("v1", epoch=2, now_us=6)
    with pytest.raises(SnapshotNotFoundError):
        found.pin("v2", epoch=9, now_us=6)
    with pytest.raises(InvalidFlowError):
        found.pin("../v", epoch=1, now_us=6)
    with pytest.raises(SnapshotNotFoundError, match="which has snapshot v1"):
        found.resolve("v9")
    found.pin("v2", epoch=2, now_us=7)
    with pytest.raises(SnapshotNotFoundError, match=r"which has snapshots v1, v2$"):
        found.resolve("v9")
    with pytest.raises(SnapshotNotFoundError, match=r"which has epochs 1 to 2$"):
        found.resolve(9)
    with pytest.raises(SnapshotNotFoundError, match=r"which has operator op$"):
        operator_of(found.resolve(1), "nobody", store="s")


def test_state_is_read_from_files_alone(store: LocalStorage) -> None:
    files = (
        write(store, 1, {"a": 1, "b": 2, "*x": 9}),
        write(store, 2, {"a": 3, "b": None, "c": 4}),
    )
    state = operator_of(manifest(2, files), "op", store="s")
    entries = read_entries(store, state, now_us=0)
    assert entries is not None

    found = read_variable(entries, state, "n").to_pylist()

    assert sorted(found, key=repr) == [
        {"k": "a", "n": 3},
        {"k": "c", "n": 4},
        {"k": None, "n": 9},
    ]
    assert read_variable(entries, state, "timers").num_rows == 0
    assert read_entries(store, manifest(1).operators["op"], now_us=0) is None
    with pytest.raises(SnapshotNotFoundError, match="did you mean 'op'"):
        operator_of(manifest(1), "opp", store="s")


def test_expired_entries_are_not_read(store: LocalStorage) -> None:
    file = write(store, 1, {"a": 1}, expires_us=100)
    state = manifest(1, (file,)).operators["op"]

    for now_us, rows in ((99, 1), (100, 0)):
        entries = read_entries(store, state, now_us=now_us)
        assert entries is not None
        assert entries.num_rows == rows


# verify


@pytest.mark.parametrize("how", ["flip", "truncate", "delete"])
def test_verify_names_the_epochs_that_are_broken(store: LocalStorage, how: str) -> None:
    found = catalog(store)
    first, second = write(store, 1, {"a": 1}), write(store, 2, {"b": 2})
    found.decide(manifest(1, (first,)))
    found.decide(manifest(2, (first, second)))
    assert all(r.is_whole for r in verify(found))
    _damage(store.root / second.path, how)

    one, two = verify(found)

    assert one.is_whole
    assert not two.is_whole
    assert second.path in two.problems[0]
    assert (two.files, two.bytes) == (2, first.bytes + second.bytes)


def _damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif how == "truncate":
        path.write_bytes(data[:-1])
    else:
        path.unlink()


def test_verify_goes_on_after_a_broken_manifest(store: LocalStorage) -> None:
    found = catalog(store)
    found.decide(manifest(1))
    found.decide(manifest(2))
    (store.root / found.paths.manifest(1)).write_bytes(b"{}")

    one, two = verify(found)

    assert (one.is_whole, two.is_whole) == (False, True)


# retention


def age(store: LocalStorage, days: int = 1) -> None:
    """Make everything in the store old."""
    then = (NOW - timedelta(days=days)).timestamp()
    for entry in store.list():
        os.utime(store.root / entry.path, (then, then))


def history(store: LocalStorage, epochs: int) -> list[StateFile]:
    """One file per epoch; each manifest refers to the newest three."""
    found = catalog(store)
    files = []
    for epoch in range(1, epochs + 1):
        files.append(write(store, epoch, {"a": epoch}))
        found.decide(manifest(epoch, tuple(files[-3:])))
        store.put(f"{found.paths.staged}{epoch:012d}/x.parquet", b"x")
    return files


def test_retention_keeps_what_kept_epochs_reach(store: LocalStorage) -> None:
    files = history(store, 10)
    age(store)

    sweep(Catalog(store), Retention(epochs=2), now=NOW)

    assert Catalog(store).epochs() == [9, 10]
    left = {e.path for e in store.list(Catalog(store).paths.state)}
    assert left == {f.path for f in files[6:]}
    assert all(r.is_whole for r in verify(Catalog(store)))
    staged = [e.path for e in store.list(Catalog(store).paths.staged)]
    assert len(staged) == 1


def test_retention_keeps_named_snapshots_whole(store: LocalStorage) -> None:
    files = history(store, 10)
    Catalog(store).pin("v1", epoch=4, now_us=0)
    age(store)

    sweep(Catalog(store), Retention(epochs=1), now=NOW)

    assert Catalog(store).epochs() == [4, 10]
    left = {e.path for e in store.list(Catalog(store).paths.state)}
    assert left == {f.path for f in [*files[1:4], *files[7:]]}
    assert all(r.is_whole for r in verify(Catalog(store)))


def test_retention_keeps_young_files_and_manifests(store: LocalStorage) -> None:
    history(store, 10)
    write(store, 11, {"b": 1})  # of an epoch that is not yet decided

    assert sweep(Catalog(store), Retention(epochs=1), now=NOW) == 0

    age(store, days=2)
    young = write(store, 12, {"b": 1})
    sweep(Catalog(store), Retention(epochs=1), now=NOW)
    assert store.exists(young.path)
    assert len(list(store.list(Catalog(store).paths.state))) == 4


def test_retention_deletes_manifests_before_their_files(
    store: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(store, 5)
    age(store)

    gone: list[str] = []
    delete = LocalStorage.delete

    def noted(self: LocalStorage, path: str) -> None:
        if "/expiring/" not in path:
            gone.append(path)
        delete(self, path)

    monkeypatch.setattr(LocalStorage, "delete", noted)
    sweep(Catalog(store), Retention(epochs=1), now=NOW)

    is_manifest = [p.endswith(".json") for p in gone]
    assert is_manifest == sorted(is_manifest, reverse=True)
    assert {True, False} == set(is_manifest)


def test_retention_of_an_empty_store_does_nothing(store: LocalStorage) -> None:
    assert sweep(catalog(store), Retention()) == 0
    assert dataclasses.asdict(Retention())["epochs"] == 20
    assert GROUPS == 8


@pytest.mark.parametrize(
    "name",
    [
        "._000000000001.json",
        "notes.json",
        "000000000001.json.bak",
        "000000000009 (copy).json",
    ],
)
def test_files_of_others_beside_records_are_left_alone(
    store: LocalStorage, name: str
) -> None:
    history(store, 3)
    found = Catalog(store)
    for folder in ("epochs", "runs", "requests", "staged", "state/op"):
        store.put(f"{found.paths.root}{folder}/{name}", b"of an editor")
    store.put("leases/._x.json", b"of an editor")
    age(store)

    assert found.epochs() == [1, 2, 3]
    assert found.newest_run() is None
    assert claim(found, now_us=1).run == 1
    assert add_request(found, Stop(run=1), now_us=1).number == 1
    sweep(found, Retention(epochs=1), now=NOW)

    assert found.epochs() == [3]
    assert store.exists(f"{found.paths.state}op/{name}") or name[0].isdigit()
