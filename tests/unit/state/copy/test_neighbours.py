"""After a rescale, key groups that are on a machine already are taken from there."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.state.copy.test_working_copy import _damage, _dead_pid
from tests.unit.worker.tasks import GROUPS, Tasks

from riverlock.core.times import seconds
from riverlock.program.process import Process
from riverlock.snapshot.format.store_layout import RegionPaths
from riverlock.snapshot.retention.compaction import Compaction, compact
from riverlock.state.copy import tail
from riverlock.state.copy.baseline import Baseline
from riverlock.state.copy.copy_place import Spot
from riverlock.state.copy.lmdb import LmdbStore, close_all
from riverlock.state.copy.neighbours import Neighbour, shared_out
from riverlock.state.copy.redo import forget_recent
from riverlock.state.copy.working_copy import WorkingCopy
from riverlock.state.keys import BROADCAST, group_id, time_bytes
from riverlock.state.spec import List, Map, Value
from riverlock.state.store import EVENT, Changes, Version
from riverlock.storage import LocalStorage

T = datetime(2024, 1, 1, tzinfo=UTC)
NAMES = [f"key {i}" for i in range(40)]


class Kept(Process):
    """One of each kind of entry, all of them told."""

    output = "k string, total long, items array<long>, seen long, lasting long"
    total = Value("long", default=0)
    items = List("long")
    seen = Map("string", "long")
    lasting = Value("long", default=0, ttl=seconds(1000))
    mine = Value("long", default=0, scope="group")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.v == 0:
            del self.total
            self.items.clear()
            self.seen.clear()
            return
        self.total += record.v
        self.items.append(record.v)
        self.seen[str(record.v)] = record.v
        self.lasting += 1
        self.mine += 1
        ctx.set_timer(T + seconds(record.v))
        yield ctx.key, self.total, self.items, len(list(self.seen)), self.lasting


class Sums(Process):
    """Only values: its changes wait in the tail."""

    output = "k string, total long"
    total = Value("long", default=0)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.v == 0:
            del self.total
            return
        self.total += record.v
        yield ctx.key, self.total


@pytest.fixture(params=[Kept, Sums])
def tasks(
    request: pytest.FixtureRequest, store: LocalStorage, tmp_path: Path
) -> Iterator[Tasks]:
    process = request.param()
    yield Tasks(store, tmp_path / "work", process, process.output, parallelism=1)
    close_all()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Path and bytes of everything that is read of the store."""
    found: list[tuple[str, int]] = []
    get, get_range = LocalStorage.get, LocalStorage.get_range

    def whole(self: LocalStorage, path: str) -> bytes:
        data = get(self, path)
        found.append((path, len(data)))
        return data

    def part(self: LocalStorage, path: str, start: int, size: int) -> bytes:
        data = get_range(self, path, start, size)
        found.append((path, len(data)))
        return data

    monkeypatch.setattr(LocalStorage, "get", whole)
    monkeypatch.setattr(LocalStorage, "get_range", part)
    return found


class Expected:
    """What an independent computation says an epoch gives."""

    def __init__(self) -> None:
        self.values: dict[str, list[int]] = {}
        self.times: dict[str, int] = {}

    def epoch(self, *rows: tuple[str, int]) -> list[Any]:
        found: list[Any] = []
        for key, v in rows:
            if v == 0:
                self.values.pop(key, None)
                continue
            mine = self.values.setdefault(key, [])
            mine.append(v)
            self.times[key] = self.times.get(key, 0) + 1
            found.append((key, sum(mine), mine[:], len(set(mine)), self.times[key]))
        return sorted(found)


def told(tasks: Tasks, rows: list[Any]) -> list[Any]:
    """Return as much of rows as the process of the tasks gives."""
    return rows if isinstance(tasks.process, Kept) else [row[:2] for row in rows]


def mixed(number: int) -> list[tuple[str, int]]:
    """Return the rows of an epoch: most keys change, some are deleted."""
    return [(k, (number + n) % 9) for n, k in enumerate(NAMES) if (number + n) % 5 != 0]


def play(tasks: Tasks, expected: Expected, *numbers: int) -> None:
    for number in numbers:
        rows = mixed(number)
        assert sorted(tasks.run(*rows)) == told(tasks, expected.epoch(*rows))
        totals = {k: sum(v) for k, v in expected.values.items()}
        stored = {k: d["total"] for k, d in tasks.truth().items()}
        assert {k: v for k, v in stored.items() if v} == totals


def taken(tasks: Tasks) -> int:
    return int(sum(v.metrics.get("groups_taken", 0) for v in tasks.votes))


def files_read(tasks: Tasks) -> int:
    return int(sum(v.metrics.get("files_read", 0) for v in tasks.votes))


def test_rescale_on_one_machine_reads_nothing_of_the_store(
    tasks: Tasks, reads: list[tuple[str, int]]
) -> None:
    expected, numbers = Expected(), itertools.count(1)
    play(tasks, expected, *(next(numbers) for _ in range(4)))

    for parallelism in (2, 7, 3, 1):
        tasks = tasks.restarted(parallelism=parallelism)
        rows = mixed(next(numbers))
        reads.clear()
        assert sorted(tasks.run(*rows)) == told(tasks, expected.epoch(*rows))
        assert reads == []
        assert (taken(tasks), files_read(tasks)) == (GROUPS, 0)
        play(tasks, expected, *(next(numbers) for _ in range(3)))


def test_only_groups_that_moved_to_a_machine_are_read(
    tasks: Tasks, reads: list[tuple[str, int]], tmp_path: Path
) -> None:
    expected, there = Expected(), tmp_path / "there"
    tasks.parallelism, tasks.elsewhere = 2, {1: there}
    play(tasks, expected, 1, 2, 3)

    # Groups 0-8 are here and 8-16 there; now 0-6 and 6-11 are here, 11-16 is there.
    tasks = tasks.restarted(parallelism=3, elsewhere={2: there})
    moved = {f.path for f in tasks.files if f.first_group == 8}
    reads.clear()
    rows = mixed(4)
    assert sorted(tasks.run(*rows)) == told(tasks, expected.epoch(*rows))

    assert {path for path, _ in reads} == moved
    assert len(reads) == len(moved)
    assert [v.metrics.get("groups_taken", 0) for v in tasks.votes] == [6, 2, 5]
    play(tasks, expected, 5, 6)


def test_range_that_was_here_long_ago_takes_what_is_newer_and_less(
    tasks: Tasks, reads: list[tuple[str, int]]
) -> None:
    expected = Expected()
    play(tasks, expected, 1, 2)
    tasks = tasks.restarted(parallelism=2)
    play(tasks, expected, *range(3, 23))

    back = tasks.restarted(parallelism=1)
    reads.clear()
    rows = mixed(23)
    assert sorted(back.run(*rows)) == told(tasks, expected.epoch(*rows))
    assert (reads, taken(back)) == ([], GROUPS)
    play(back, expected, 24)


def test_range_that_was_here_just_now_only_catches_up(
    tasks: Tasks, reads: list[tuple[str, int]]
) -> None:
    expected = Expected()
    play(tasks, expected, 1, 2, 3, 4, 5)
    tasks = tasks.restarted(parallelism=2)
    few = [(NAMES[0], 3), (NAMES[1], 4)]
    for _ in range(2):
        assert sorted(tasks.run(*few)) == told(tasks, expected.epoch(*few))

    back = tasks.restarted(parallelism=1)
    reads.clear()
    play(back, expected, 6)
    assert taken(back) == 0
    made_since = {f.path for f in back.files if f.first_epoch in (6, 7)}
    assert {path for path, _ in reads} >= made_since


def test_copies_that_are_further_behind_are_left_alone(
    store: LocalStorage, tmp_path: Path
) -> None:
    few = [(name, 5) for name in NAMES[:3]]
    many = [(f"key {n}", 5) for n in range(200)]
    old = Tasks(store, tmp_path / "work", Sums(), Sums.output, parallelism=2)
    for _ in range(3):
        old.run(*few)
    tasks = old.restarted(parallelism=1)
    for _ in range(8):
        tasks.run(*many)
    tasks.elsewhere = {0: tmp_path / "there"}
    for _ in range(3):
        tasks.run(*many)

    tasks.elsewhere = {}
    tasks.run(*many)

    assert (files_read(tasks), taken(tasks)) == (3, 0)
    close_all()


def later(tasks: Tasks) -> Tasks:
    """The copy has epochs that were undone."""
    before = replace(tasks)
    for number in (70, 71, 72):
        tasks.run(*mixed(number))
    return before


def other_timeline(tasks: Tasks) -> Tasks:
    """So it does, and other epochs have their numbers by now."""
    home = tasks.working_dir
    other = later(tasks).restarted(working_dir=home / "away")
    for _ in range(4):
        other.run()
    return replace(other, working_dir=home)


def other_schema(tasks: Tasks) -> Tasks:
    class More(type(tasks.process)):  # type: ignore[misc]
        extra = Value("string", default="new")

    return tasks.restarted(process=More())


def crashed_over(tasks: Tasks) -> Tasks:
    (busy,) = tasks.working_dir.rglob("*.busy")
    (busy / f"{_dead_pid()}-{tasks.token}+").touch()
    return tasks


def half_way(tasks: Tasks) -> Tasks:
    (copy,) = tasks.copies()
    LmdbStore(copy).apply(Changes.empty(), Version(tasks.epoch, "incomplete", ""))
    return tasks


def overtaken(tasks: Tasks) -> Tasks:
    """A compaction that the copy is behind of has dropped what is deleted."""
    home, tasks.working_dir = tasks.working_dir, tasks.working_dir / "away"
    for key in NAMES:
        tasks.run((key, 0))
    tasks.files = compact(
        tasks.storage,
        RegionPaths("main"),
        Compaction(operator="op", files=tasks.files, drops_tombstones=True),
        now_us=0,
        pieces=[(0, GROUPS)],
        attempt="merged",
    )
    tasks.working_dir = home
    return tasks


def damaged(how: str) -> Any:
    def damage(tasks: Tasks) -> Tasks:
        (copy,) = tasks.copies()
        _damage(copy, how)
        return tasks

    return damage


@pytest.mark.parametrize(
    "doubt",
    [
        *(damaged(how) for how in ("truncate", "garbage", "lose", "flip", "seal")),
        later,
        other_timeline,
        other_schema,
        crashed_over,
        half_way,
        overtaken,
    ],
)
def test_neighbour_that_is_in_doubt_is_not_taken(
    tasks: Tasks,
    reads: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    doubt: Any,
) -> None:
    # Nothing waits beside LMDB, where it would hide what LMDB has.
    monkeypatch.setattr(tail, "_MAX_FILES", 1)
    expected = Expected()
    play(tasks, expected, 1, 2, 3, 4)
    tasks = doubt(tasks)
    if doubt is overtaken:
        expected.values.clear()
    close_all()
    forget_recent()

    other = tasks.restarted(parallelism=2)
    reads.clear()
    rows = mixed(5)
    found = [row[:2] for row in other.run(*rows)]
    assert sorted(found) == [row[:2] for row in expected.epoch(*rows)]
    assert taken(other) == 0
    assert reads


def test_neighbour_that_is_being_moved_is_not_waited_for(
    tasks: Tasks, reads: list[tuple[str, int]]
) -> None:
    expected = Expected()
    play(tasks, expected, 1, 2)
    (lock,) = tasks.working_dir.rglob("*.lock")
    other = tasks.restarted(parallelism=2)

    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        play(other, expected, 3)

    assert taken(other) == 0


def test_neighbour_is_left_as_it_is(tasks: Tasks) -> None:
    expected = Expected()
    play(tasks, expected, 1, 2, 3)
    (copy,) = tasks.copies()
    close_all()
    before = (copy / "data.mdb").read_bytes()

    play(tasks.restarted(parallelism=3), expected, 4)

    assert (copy / "data.mdb").read_bytes() == before
    (busy,) = tasks.working_dir.rglob("00000-00016.busy")
    assert list(busy.iterdir()) == []


def test_several_take_from_one_neighbour_at_the_same_time(tasks: Tasks) -> None:
    expected = Expected()
    play(tasks, expected, 1, 2, 3)
    other = tasks.restarted(parallelism=4)
    task, begun, rows = other.task(), other.begun(), mixed(4)
    close_all()
    children = []
    for partition in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                task(other.batches(rows, partition), partition, begun)
                code = 0
            finally:
                os._exit(code)
        children.append(pid)

    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    play(other, expected, 4)
    assert files_read(other) == 0


V = Version(3, "t", "d" * 32)


def test_all_kinds_of_entries_are_taken(store: LocalStorage, tmp_path: Path) -> None:
    root = tmp_path / "work"
    whole = Changes.empty()
    for group in range(8):
        whole.puts[group_id(group)] = b"of a group"
        whole.puts[group_id(group) + b"x"] = time_bytes(50 + group) + b"value"
        whole.expiries.append(time_bytes(50 + group) + group_id(group) + b"x")
        slot = bytes((EVENT,)) + time_bytes(100 + group)
        whole.timers.append((slot, group_id(group), b"key"))
    whole.puts[BROADCAST] = b"of all"
    LmdbStore(root / "00000-00004").apply(_groups(whole, 0, 4), V)
    LmdbStore(root / "00004-00008").apply(_groups(whole, 4, 8), V)
    base: Any = Baseline(epoch=3, now_us=53, history=((0, "t"),))
    layout: Any = type("Layout", (), {"digest": V.schema})

    copy = WorkingCopy(root, (2, 6), "t")
    with copy.reading(base, layout, store) as reader:
        found = dict(reader.scan(b""))
        timers = list(reader.due_timers(EVENT, 1000))

    # Those that expire until 53 are gone: the index of expiry is there too.
    gone = {group_id(group) + b"x" for group in (2, 3)}
    mine = _groups(whole, 2, 6)
    assert found == {i: p for i, p in mine.puts.items() if i not in gone}
    assert timers == [(100 + g, group_id(g), b"key") for g in range(2, 6)]
    assert (copy.groups_taken, copy.files_read) == (4, 0)
    close_all()


def _groups(changes: Changes, first: int, end: int) -> Changes:
    names = {g.to_bytes(2) for g in range(first, end)}
    shared = names | {BROADCAST[:2]}
    return Changes(
        {i: p for i, p in changes.puts.items() if i[:2] in shared},
        [],
        [t for t in changes.timers if t[1][:2] in names],
        [e for e in changes.expiries if e[8:10] in names],
    )


def test_groups_come_from_the_newest_that_has_them() -> None:
    def neighbour(first: int, end: int) -> Neighbour:
        nothing: Any = None
        return Neighbour(Spot(Path("root"), (first, end)), nothing, nothing, V)

    newer, older = neighbour(4, 6), neighbour(2, 9)
    shares = shared_out((0, 10), [newer, older])

    assert [(s.groups, s.of, s.has_shared) for s in shares] == [
        ((4, 6), newer, True),
        ((2, 4), older, False),
        ((6, 9), older, False),
        ((0, 2), None, False),
        ((9, 10), None, False),
    ]
    assert b"\xff\xff" in shares[0].names
    assert [(s.groups, s.of) for s in shared_out((0, 2), [])] == [((0, 2), None)]
