"""Every storage keeps the promises of the protocol."""

from __future__ import annotations

import multiprocessing
import pickle
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from riverlock.core.errors import StorageError, StorageNotFoundError
from riverlock.storage import LocalStorage, Reason, Storage
from riverlock.storage.memory import MemoryStorage
from riverlock.storage.object import ObjectStorage

RACERS = 8
ROUNDS = 5


def make_local(tmp_path: Path, _: Callable[[], str]) -> Storage:
    return LocalStorage(tmp_path / "store")


def make_object_file(tmp_path: Path, _: Callable[[], str]) -> Storage:
    root = tmp_path / "store"
    root.mkdir()
    return ObjectStorage(root.as_uri())


def make_s3(_: Path, endpoint: Callable[[], str]) -> Storage:
    return ObjectStorage(
        f"s3://bucket/{uuid.uuid4().hex}",
        options={
            "endpoint": endpoint(),
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
            "client_options": {"allow_http": True},
        },
    )


def make_memory(_: Path, __: Callable[[], str]) -> Storage:
    return MemoryStorage()


SHARED = [make_local, make_object_file, make_s3]


def made(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    found: Storage = request.param(
        tmp_path, lambda: request.getfixturevalue("s3_endpoint")
    )
    return found


@pytest.fixture(params=[*SHARED, make_memory])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return made(request, tmp_path)


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A storage that other processes reach, too."""
    return made(request, tmp_path)


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return [entry.path for entry in storage.list(prefix)]


def test_put_then_get_returns_the_bytes(storage: Storage) -> None:
    data = bytes(range(256)) * 1000

    storage.put("a/b c/é.bin", data)

    assert storage.get("a/b c/é.bin") == data


def test_get_range_returns_a_part(storage: Storage) -> None:
    storage.put("a/file", bytes(range(100)))

    assert storage.get_range("a/file", 10, 5) == bytes(range(10, 15))
    assert storage.get_range("a/file", 95, 50) == bytes(range(95, 100))
    with pytest.raises(StorageNotFoundError):
        storage.get_range("a/none", 0, 1)


def test_put_replaces(storage: Storage) -> None:
    storage.put("a", b"old and longer")
    storage.put("a", b"new")

    assert storage.get("a") == b"new"


def test_empty_file_is_a_file(storage: Storage) -> None:
    storage.put("empty", b"")

    assert storage.get("empty") == b""
    assert storage.exists("empty")


def test_get_of_nothing_names_the_path(storage: Storage) -> None:
    with pytest.raises(StorageNotFoundError) as caught:
        storage.get("a/none")

    assert caught.value.path == "a/none"
    assert not caught.value.retryable


def test_head_describes_or_returns_none(storage: Storage) -> None:
    storage.put("a/b", b"12345")

    entry = storage.head("a/b")

    assert entry is not None
    assert (entry.path, entry.size) == ("a/b", 5)
    assert abs(datetime.now(UTC) - entry.mtime) < timedelta(minutes=1)
    assert storage.head("a/c") is None
    assert storage.head("a") is None
    assert not storage.exists("a")


def test_list_is_sorted_and_bound_to_its_directory(storage: Storage) -> None:
    for path in ["b/2", "b/10", "b/c/1", "bc/1", "a", "b-/1"]:
        storage.put(path, b"x")

    assert paths(storage) == sorted(["b/2", "b/10", "b/c/1", "bc/1", "a", "b-/1"])
    assert paths(storage, "b") == ["b/10", "b/2", "b/c/1"]
    assert paths(storage, "b/") == ["b/10", "b/2", "b/c/1"]
    assert paths(storage, "none") == []


def test_list_of_a_storage_never_written_is_empty(storage: Storage) -> None:
    assert paths(storage) == []


def test_list_gives_every_one_of_many(storage: Storage) -> None:
    names = [f"many/{n:04}" for n in range(60)]
    for name in reversed(names):
        storage.put(name, name.encode())

    entries = list(storage.list("many"))

    assert [entry.path for entry in entries] == names
    assert {entry.size for entry in entries} == {len(names[0])}


def test_delete_is_idempotent(storage: Storage) -> None:
    storage.put("a/b", b"x")

    storage.delete("a/b")
    storage.delete("a/b")
    storage.delete("never/was")

    assert not storage.exists("a/b")


def test_put_if_absent_writes_once(storage: Storage) -> None:
    assert storage.put_if_absent("epochs/1", b"first")
    assert not storage.put_if_absent("epochs/1", b"second")

    assert storage.get("epochs/1") == b"first"
    assert paths(storage) == ["epochs/1"]


def test_put_if_absent_refuses_what_put_wrote(storage: Storage) -> None:
    storage.put("a", b"put")

    assert not storage.put_if_absent("a", b"other")


def race(argument: tuple[bytes, str, int]) -> tuple[bool, bytes]:
    pickled, path, racer = argument
    storage: Storage = pickle.loads(pickled)
    won = storage.put_if_absent(path, f"racer {racer}".encode())
    return won, storage.get(path)


def test_put_if_absent_has_one_winner_of_eight_processes(shared: Storage) -> None:
    pickled = pickle.dumps(shared)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(RACERS, mp_context=context) as pool:
        for turn in range(ROUNDS):
            path = f"race/{turn}"
            work = [(pickled, path, racer) for racer in range(RACERS)]

            results = list(pool.map(race, work))

            winners = [n for n, (won, _) in enumerate(results) if won]
            assert len(winners) == 1
            assert {seen for _, seen in results} == {f"racer {winners[0]}".encode()}


def test_storage_survives_pickling_after_use(shared: Storage) -> None:
    shared.put("a", b"x")

    copy = pickle.loads(pickle.dumps(shared))

    assert copy.get("a") == b"x"
    assert copy.uri == shared.uri


@pytest.mark.parametrize(
    "path",
    ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", "a\\b", "a\0b", "a\nb", ".tmp/x"],
)
def test_path_that_leaves_the_root_is_refused(storage: Storage, path: str) -> None:
    for operation in (
        storage.get,
        storage.head,
        storage.delete,
        storage.local_path,
        lambda path: storage.put(path, b""),
        lambda path: storage.put_if_absent(path, b""),
    ):
        with pytest.raises(StorageError) as caught:
            operation(path)
        assert caught.value.reason == Reason.INVALID_PATH


def test_file_written_by_local_path_is_part_of_the_storage(storage: Storage) -> None:
    local = storage.local_path("state/x/1.parquet", for_writing=True)
    if local is None:
        storage.put("state/x/1.parquet", b"data")
    else:
        local.write_bytes(b"data")

    storage.make_durable("state/x/1.parquet")

    assert storage.get("state/x/1.parquet") == b"data"
    assert paths(storage, "state") == ["state/x/1.parquet"]


def test_make_durable_of_nothing_is_an_error(storage: Storage) -> None:
    with pytest.raises(StorageNotFoundError):
        storage.make_durable("none")
