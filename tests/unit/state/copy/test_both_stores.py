"""Both stores behave alike; LMDB also survives what disks and processes do."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.unit.snapshot.killing import beside

from riverlock.core.errors import StateCorruptedError, StorageError
from riverlock.state.copy.lmdb import LmdbStore
from riverlock.state.copy.lmdb import store as lmdb
from riverlock.state.copy.memory import MemoryStore
from riverlock.state.keys import ordinal_bytes, time_bytes
from riverlock.state.store import EVENT, PROCESSING, Changes, Store, Version

V1, V2 = Version(1, "t", "s"), Version(2, "t", "s")


@pytest.fixture(params=["memory", "lmdb"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else LmdbStore(tmp_path / "copy")


def puts(*pairs: tuple[bytes, bytes]) -> Changes:
    changes = Changes.empty()
    changes.puts.update(pairs)
    return changes


def content(store: Store) -> dict[bytes, bytes]:
    with store.read() as reader:
        return dict(reader.scan(b""))


def test_empty_store_has_no_version(any_store: Store) -> None:
    assert any_store.version() is None
    assert content(any_store) == {}


def test_apply_puts_deletes_and_takes_the_version(any_store: Store) -> None:
    any_store.apply(puts((b"a", b"1"), (b"b", b"2")), V1)
    second = puts((b"b", b"3"), (b"c", b""))
    second.deletes += [b"a", b"nobody"]

    any_store.apply(second, V2)

    assert any_store.version() == V2
    assert content(any_store) == {b"b": b"3", b"c": b""}
    with any_store.read() as reader:
        assert reader.get(b"b") == b"3"
        assert reader.get(b"a") is None
        assert reader.get_many([b"a", b"b", b"c"]) == [None, b"3", b""]
        assert reader.get_many([]) == []


def test_apply_is_repeatable(any_store: Store) -> None:
    changes = puts((b"a", b"1"))
    changes.deletes.append(b"b")

    any_store.apply(changes, V1)
    any_store.apply(changes, V1)

    assert content(any_store) == {b"a": b"1"}


def test_timers_come_in_time_order_and_end(any_store: Store) -> None:
    changes = Changes.empty()
    for kind, at, key in ((0, 5, b"b"), (0, -3, b"a"), (0, 5, b"a"), (1, 1, b"c")):
        changes.timers.append((bytes((kind,)) + time_bytes(at), key, b"K" + key))
    any_store.apply(changes, V1)

    with any_store.read() as reader:
        assert list(reader.due_timers(EVENT, 5)) == [
            (-3, b"a", b"Ka"),
            (5, b"a", b"Ka"),
            (5, b"b", b"Kb"),
        ]
        assert list(reader.due_timers(EVENT, 4)) == [(-3, b"a", b"Ka")]
        assert list(reader.due_timers(PROCESSING, 0)) == []
        assert (reader.first_timer(EVENT), reader.first_timer(PROCESSING)) == (-3, 1)
    gone = Changes.empty()
    gone.timers.append((b"\x01" + time_bytes(1), b"c", None))
    any_store.apply(gone, V2)
    with any_store.read() as reader:
        assert reader.first_timer(PROCESSING) is None
        assert list(reader.due_timers(PROCESSING, 1 << 60)) == []


def test_purge_removes_what_expired_and_was_not_written_again(any_store: Store) -> None:
    first = puts(*((k, time_bytes(10) + b"x") for k in (b"a", b"b", b"c")))
    first.expiries += [time_bytes(10) + k for k in (b"a", b"b", b"c")]
    any_store.apply(first, V1)
    again = puts((b"b", time_bytes(20) + b"y"))
    again.expiries.append(time_bytes(20) + b"b")
    any_store.apply(again, V2)

    assert any_store.purge(9, 100) == 0
    assert any_store.purge(10, 2) == 2
    assert any_store.purge(10, 100) == 1
    assert set(content(any_store)) == {b"b"}
    assert any_store.version() == V2
    assert any_store.purge(20, 100) == 1
    assert content(any_store) == {}


def test_clear_forgets_everything(any_store: Store) -> None:
    any_store.apply(puts((b"a", b"1")), V1)

    any_store.clear()

    assert any_store.version() is None
    assert content(any_store) == {}
    any_store.apply(puts((b"b", b"2")), V2)
    assert (any_store.version(), content(any_store)) == (V2, {b"b": b"2"})


# LMDB


@pytest.fixture
def copy(tmp_path: Path) -> LmdbStore:
    store = LmdbStore(tmp_path / "copy")
    store.apply(
        puts(*((f"key {i:05d}".encode(), b"v" * 100) for i in range(5_000))), V1
    )
    return store


def test_lmdb_map_grows_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb, "_FIRST_MAP", 1 << 20)
    store = LmdbStore(tmp_path / "copy")

    store.apply(puts(*((bytes([i]), bytes([i]) * (1 << 20)) for i in range(20))), V1)

    assert len(content(store)) == 20
    store.close()
    assert content(LmdbStore(tmp_path / "copy"))[b"\x05"] == b"\x05" * (1 << 20)


def test_lmdb_reader_keeps_its_version_while_others_write(copy: LmdbStore) -> None:
    with copy.read() as reader:
        copy.apply(puts((b"new", b"1")), V2)

        assert reader.get(b"new") is None
    assert content(copy)[b"new"] == b"1"


def _write_large(path: Path) -> None:
    store = LmdbStore(path)
    store.apply(puts((b"large", b"x" * (100 << 20))), V2)
    store.close()


def test_lmdb_files_in_use_stay_open_however_many_there_are(
    copy: LmdbStore, tmp_path: Path
) -> None:
    copy.apply(puts((b"a", b"1")), V1)
    others = [LmdbStore(tmp_path / f"{n}") for n in range(lmdb._MAX_OPEN + 1)]

    with copy.read() as reader:
        for other in others:
            other.apply(puts((b"b", b"2")), V1)
        assert reader.get(b"a") == b"1"

    others[0].apply(puts((b"c", b"3")), V2)
    assert len(lmdb._OPEN) <= lmdb._MAX_OPEN
    lmdb.close_below(tmp_path)


def _closed(store: LmdbStore) -> None:
    store.close()


def _cleared(store: LmdbStore) -> None:
    store.clear()


def _closed_below(store: LmdbStore) -> None:
    lmdb.close_below(store.path.parent)


@pytest.mark.parametrize("closed", [_closed, _cleared, _closed_below])
def test_lmdb_files_stay_open_as_long_as_another_thread_reads(
    copy: LmdbStore, closed: Callable[[LmdbStore], None]
) -> None:
    copy.apply(puts((b"a", b"1")), V1)
    environment = lmdb._OPEN[os.getpid(), str(copy.path)].env

    with copy.read() as reader:
        closed(LmdbStore(copy.path))
        assert reader.get(b"a") == b"1"
        assert environment.path()
    closed(copy)

    with pytest.raises(Exception, match="closed"):
        environment.path()


def test_lmdb_files_that_are_read_can_be_cleared_and_made_anew(copy: LmdbStore) -> None:
    copy.apply(puts((b"a", b"1")), V1)

    with copy.read() as reader:
        copy.clear()
        copy.apply(puts((b"b", b"2")), V2)
        assert content(copy) == {b"b": b"2"}
        assert reader.get(b"a") == b"1"
        assert reader.get(b"b") is None


def test_lmdb_map_does_not_move_below_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb, "_FIRST_MAP", 1 << 20)
    store, large = LmdbStore(tmp_path / "copy"), puts((b"large", b"x" * (4 << 20)))
    store.apply(puts((b"a", b"1")), V1)

    with store.read() as reader:
        with pytest.raises(StateCorruptedError, match="outgrown its map"):
            store.apply(large, V2)
        assert reader.get(b"a") == b"1"

    store.apply(large, V2)
    assert len(content(store)[b"large"]) == 4 << 20


def test_lmdb_follows_a_map_that_another_process_grew(copy: LmdbStore) -> None:
    assert copy.version() == V1
    child = multiprocessing.get_context("spawn").Process(
        target=_write_large, args=(copy.path,)
    )
    child.start()
    child.join(250)

    assert child.exitcode == 0
    assert copy.version() == V2
    assert len(content(copy)[b"large"]) == 100 << 20


def test_lmdb_survives_a_fork_with_an_open_environment(copy: LmdbStore) -> None:
    assert copy.version() == V1
    child = os.fork()
    if child == 0:
        ok = False
        try:
            store = LmdbStore(copy.path)
            ok = store.version() == V1 and len(content(store)) == 5_000
        finally:
            os._exit(0 if ok else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert len(content(copy)) == 5_000


@pytest.mark.parametrize("how", ["truncated", "empty", "garbage", "lost", "seal"])
def test_lmdb_that_is_damaged_has_no_version(copy: LmdbStore, how: str) -> None:
    copy.close()
    data = copy.path / "data.mdb"
    match how:
        case "truncated":
            os.truncate(data, data.stat().st_size // 2)
        case "empty":
            os.truncate(data, 0)
        case "garbage":
            data.write_bytes(os.urandom(data.stat().st_size))
        case "lost":
            data.unlink()
        case _:
            (copy.path / "seal.json").write_bytes(b"{")

    assert copy.version() is None
    copy.apply(puts((b"a", b"1")), V2)
    assert (copy.version(), content(copy)) == (V2, {b"a": b"1"})


def test_lmdb_truncated_under_an_open_environment_has_no_version(
    copy: LmdbStore,
) -> None:
    with copy.read():
        pass
    data = copy.path / "data.mdb"
    os.truncate(data, data.stat().st_size // 2)

    assert copy.version() is None


def test_lmdb_of_another_boot_is_thrown_away(copy: LmdbStore) -> None:
    seal = copy.path / "seal.json"
    found = msgspec.json.decode(seal.read_bytes())
    seal.write_bytes(msgspec.json.encode({**found, "boot": "another"}))

    assert copy.version() is None
    assert not (copy.path / "data.mdb").exists()


def test_lmdb_notices_a_flipped_byte_in_a_value(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "copy")
    store.apply(puts((b"key", b"a value that is easy to find")), V1)
    store.close()
    data = store.path / "data.mdb"
    data.write_bytes(data.read_bytes().replace(b"easy to find", b"easy to fund"))

    with pytest.raises(StateCorruptedError, match="CRC"):
        content(store)


def test_lmdb_notices_a_flipped_byte_in_a_window(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "copy")
    names = [b"\0\0" + ordinal_bytes(end) for end in (1, 2)]
    store.apply(puts(*((name, b"easy to find " + name) for name in names)), V1)
    store.close()
    data = store.path / "data.mdb"
    flipped = b"easy to fund " + names[1]
    data.write_bytes(data.read_bytes().replace(b"easy to find " + names[1], flipped))

    with store.read() as reader:
        assert reader.span(None, 1)[0].to_pylist() == names[:1]
        with pytest.raises(StateCorruptedError, match="CRC"):
            reader.span(None, 2)


def test_lmdb_notices_damage_to_what_says_which_groups_there_are(
    tmp_path: Path,
) -> None:
    store = LmdbStore(tmp_path / "copy")
    store.apply(puts((b"\0\0" + ordinal_bytes(1), b"row")), V1)
    store.close()
    data = store.path / "data.mdb"
    whole = msgspec.msgpack.encode({b"\0\0": 0})[:5]
    assert whole in data.read_bytes()
    data.write_bytes(data.read_bytes().replace(whole, whole[:-1] + b"\1"))

    with store.read() as reader, pytest.raises(StateCorruptedError, match="CRC"):
        reader.span(None, 1)


_LEAK = """
import ctypes, sys
from pathlib import Path
from riverlock.state.copy.lmdb import LmdbStore
from riverlock.state.store import Changes, Version

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
pieces = [libc.malloc(4096) for _ in range(4000)]
for piece in pieces:
    ctypes.memmove(piece, b"s3cret-" * 585, 4095)
for piece in pieces[1::2]:
    libc.free(piece)
copy = LmdbStore(Path(sys.argv[1]))
for epoch in range(1, 6):
    changes = Changes.empty()
    changes.puts.update((b"%05d" % i, b"%d" % epoch) for i in range(1000))
    copy.apply(changes, Version(epoch, "t", "s"))
"""


def test_lmdb_never_holds_what_the_process_had_in_memory(tmp_path: Path) -> None:
    # Passwords, rows of other flows: pages are made of memory that was used before.
    subprocess.run([sys.executable, "-c", _LEAK, str(tmp_path / "copy")], check=True)

    files = [p for p in (tmp_path / "copy").iterdir() if p.is_file()]
    assert files
    assert not [p.name for p in files if b"s3cret" in p.read_bytes()]


def test_lmdb_is_readable_after_its_writer_was_killed(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from riverlock.state.copy.lmdb import LmdbStore
from riverlock.state.store import Changes, Version
store = LmdbStore(Path({str(tmp_path / "copy")!r}))
for n in range(1, 1000):
    changes = Changes.empty()
    changes.puts |= {{b"%04d" % i: b"%d" % n for i in range(200)}}
    store.apply(changes, Version(n, "t", "s"))
    if n == 50:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    child = subprocess.run([sys.executable, "-c", program], check=False)

    assert child.returncode == -9
    store = LmdbStore(tmp_path / "copy")
    assert store.version() == Version(50, "t", "s")
    assert set(content(store).values()) == {b"50"}


def _read_everything(path: Path, ids: list[bytes]) -> object:
    """What a task could learn from a copy; ``damaged`` if it was told so."""
    store = LmdbStore(path)
    try:
        if store.version() is None:
            return "damaged"
        with store.read() as reader:
            return (
                reader.get_many(ids),
                [reader.get(i) for i in ids[::7]],
                list(reader.scan(ids[0][:3])),
                list(reader.due_timers(EVENT, 1 << 60)),
            )
    except StateCorruptedError:
        return "damaged"


def _child_reads(path: Path, ids: list[bytes], expected: object) -> str:
    """Read in a child process: a damaged tree may also kill its reader."""
    pid = os.fork()
    if pid == 0:
        code = 5
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            found = _read_everything(path, ids)
            code = 0 if found == expected else 3 if found == "damaged" else 4
        finally:
            os._exit(code)  # whatever is raised: two must not go on with the tests
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return "killed"  # a crashed worker's copy is thrown away
    outcomes = {0: "right", 3: "damaged", 4: "wrong", 5: "raised"}
    return outcomes[os.WEXITSTATUS(status)]


def test_no_flipped_bit_makes_a_copy_lie(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    changes = Changes.empty()
    stored = [b"\0%c" % (n % 4) + b"%08d" % (n * 3) for n in range(1500)]
    changes.puts |= {i: i[::-1] * 2 for i in stored}
    changes.timers += [
        (bytes((EVENT,)) + time_bytes(n * 10), stored[n], b"key") for n in range(40)
    ]
    store = LmdbStore(path)
    store.apply(changes, V1)
    store.close()
    absent = [b"\0%c" % (n % 4) + b"%08d" % (n * 3 + 1) for n in range(50)]
    ids = sorted([*stored, *absent])
    expected = _read_everything(path, ids)
    LmdbStore(path).close()
    whole, seal = (path / "data.mdb").read_bytes(), (path / "seal.json").read_bytes()
    chance = random.Random(5)
    outcomes = Counter[str]()
    for _ in range(300):
        damaged = bytearray(whole)
        bit = chance.randrange(len(whole) * 8)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.mkdir(exist_ok=True)  # whoever notices damage throws the copy away
        (path / "seal.json").write_bytes(seal)
        (path / "data.mdb").write_bytes(damaged)
        outcomes[_child_reads(path, ids, expected)] += 1

    assert outcomes["wrong"] == outcomes["raised"] == 0, outcomes
    assert outcomes["damaged"] > 50, outcomes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(place: Path, *, but: int) -> None:
    descriptor = os.open(place / "other", os.O_CREAT | os.O_WRONLY)
    with suppress(OSError):
        while True:
            os.write(descriptor, bytes(4096))
    os.ftruncate(descriptor, os.fstat(descriptor).st_size - but)
    os.close(descriptor)


@pytest.mark.parametrize("pages", [0, 1, 17, 18])
def test_a_full_disk_is_an_error_and_kills_nobody(small_disk: Path, pages: int) -> None:
    store = LmdbStore(small_disk / "copy")
    (small_disk / "copy").mkdir()
    fill(small_disk, but=pages * 4096)

    def open_it() -> None:
        with pytest.raises(StorageError, match="no space left"):
            store.apply(puts((b"key", b"v" * 100_000)), V1)

    _, status = os.waitpid(beside(open_it), 0)

    assert status == 0
    (small_disk / "other").unlink()
    store.clear()  # as for any copy that cannot be read
    store.apply(puts((b"key", b"v" * 100_000)), V1)
    assert store.version() == V1
    store.close()
