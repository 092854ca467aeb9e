"""Regions that are not exactly once: what leaves when, what comes again, what does not.

Kills are in ``tests/chaos/test_guarantees.py``; here steps fail while the run goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from tests.chaos.guarantee_flow import Repeat, events, flow_of, state, state_after
from tests.unit.driver.test_regions_run import run

import riverlock as rl
from riverlock.coordinator.restart import FixedDelay
from riverlock.core.errors import CommitRejectedError, UserCodeError
from riverlock.core.guarantees import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    Guarantee,
)
from riverlock.engines.local.deployment import LocalDeployment
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage
from riverlock.testing import rows

Protocol = Literal["aligned", "unaligned", "drain", "epochs"]
AT_ONCE = FixedDelay(delay_us=1, attempts=5)


class Counted(rl.Process):
    """Counts, and emits what it gets."""

    output = "n long"
    count = rl.Value("long", default=0)

    def on_event(self, event: Any, ctx: rl.Context) -> Any:
        self.count += 1
        if event.n < 0:
            message = "below zero"
            raise ValueError(message)
        yield (event.n,)


def simple(
    given: list[Any], guarantee: Guarantee, take: Callable[[int], None]
) -> rl.Flow:
    """Return a flow of one region, whose rows go to a function."""
    flow = rl.Flow("simple", key_groups=4, guarantee=guarantee)
    read = flow.read(rows("n long", given), uid="in")
    counted = read.key_by("n").process(Counted(), uid="counted")
    counted.write(rl.sinks.for_each_row(lambda row, _: take(row["n"])), uid="out")
    return flow


def numbers(end: int, start: int = 0) -> list[tuple[int]]:
    return [(n,) for n in range(start, end)]


def seen(store: str) -> int:
    return sum(
        r["count"] for r in rl.open(store).state("counted").to_arrow().to_pylist()
    )


def failing(found: list[int], *at: int) -> Callable[[int], None]:
    """Return a function that keeps rows, and fails at these calls after it has."""
    calls = iter(range(1_000_000))

    def take(n: int) -> None:
        found.append(n)
        if next(calls) in at:
            message = "the receiver is not well"
            raise OSError(message)

    return take


def test_at_least_once_rows_leave_before_their_epoch_is_decided(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    newest = []

    def take(_: int) -> None:
        found = Catalog(open_storage(store)).newest()
        newest.append(None if found is None else found.epoch)

    run(simple(numbers(4), AT_LEAST_ONCE, take), store, max_rows_per_epoch=2)
    assert newest == [None, None, 0, 0]
    found = Catalog(open_storage(store)).newest()
    assert found is not None
    assert found.guarantee == AT_LEAST_ONCE
    assert found.outputs["out"].tokens == ()
    assert found.outputs["out"].rows == 2


def test_a_replay_delivers_nothing(tmp_path: Path) -> None:
    store, found = str(tmp_path / "s"), list[int]()
    flow = simple(numbers(4), AT_LEAST_ONCE, found.append)
    run(flow, store)
    replayed = flow.replay(store, 0, execution="local")
    assert sorted(found) == [*range(4)]
    (output,) = replayed.epochs[0].outputs
    assert (output.recorded_rows, output.rows, output.matches) == (4, 4, None)
    assert replayed.epochs[0].matches


def test_at_least_once_a_failure_repeats_rows_and_state_is_right(
    tmp_path: Path,
) -> None:
    store, found = str(tmp_path / "s"), list[int]()
    flow = simple(numbers(30), AT_LEAST_ONCE, failing(found, 3, 17))
    run(flow, store, max_rows_per_epoch=10, restart=AT_ONCE)
    assert set(found) == set(range(30))
    assert max(Counter(found).values()) == 2
    assert seen(store) == 30


def test_at_most_once_a_sink_that_fails_is_not_asked_again(tmp_path: Path) -> None:
    store, found = str(tmp_path / "s"), list[int]()
    told = list[Any]()
    flow = simple(numbers(30), AT_MOST_ONCE, failing(found, 3))
    run(flow, store, max_rows_per_epoch=10, parallelism=1, on_status=told.append)
    assert len(found) == len(set(found)) == 4 + 10 + 10
    assert told[-1].undelivered_rows == 10  # of which 4 were there
    assert told[-1].skipped_rows == 0
    assert seen(store) == 30


def test_at_most_once_a_sink_that_refuses_for_good_ends_the_run(tmp_path: Path) -> None:
    def refuse(n: int) -> None:
        raise CommitRejectedError("out", epoch=None, what="the table is gone")

    with pytest.raises(CommitRejectedError):
        run(simple(numbers(3), AT_MOST_ONCE, refuse), str(tmp_path / "s"))


def test_at_most_once_a_stop_is_no_failure(tmp_path: Path) -> None:
    store, given, found = str(tmp_path / "s"), numbers(10), list[int]()
    for end in (10, 25, 40):
        given += numbers(end, len(given))
        run(simple(given, AT_MOST_ONCE, found.append), store, max_rows_per_epoch=4)
    assert sorted(found) == [*range(40)]
    assert seen(store) == 40


def test_at_most_once_goes_on_with_the_newest_input_after_an_error(
    tmp_path: Path,
) -> None:
    store, found, told = str(tmp_path / "s"), list[int](), list[Any]()
    given = [*numbers(10), (-1,), *numbers(20, 10)]
    with pytest.raises(UserCodeError):
        run(simple(given, AT_MOST_ONCE, found.append), store, max_rows_per_epoch=5)
    assert sorted(found) == [*range(10)]
    # The poison record is left out, and so is what waits behind it.
    flow = simple(given, AT_MOST_ONCE, found.append)
    run(flow, store, on_status=told.append)
    assert told[-1].skipped_rows == 11
    newest = Catalog(open_storage(store)).newest()
    assert newest is not None
    assert (newest.inputs["in"].start, newest.inputs["in"].skipped) == (21, 11)
    given += numbers(25, 20)
    run(simple(given, AT_MOST_ONCE, found.append), store)
    assert sorted(found) == [*range(10), *range(20, 25)]
    assert seen(store) == 15


def test_at_most_once_an_epoch_that_fails_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, found, told = str(tmp_path / "s"), list[int](), list[Any]()
    given, calls = numbers(30), iter(range(1_000))
    works = LocalDeployment.run_stage

    def fails_once(*args: Any, **more: Any) -> Any:
        if next(calls) == 1:
            given.extend(numbers(35, 30))
            message = "a task was lost"
            raise OSError(message)
        return works(*args, **more)

    monkeypatch.setattr(LocalDeployment, "run_stage", fails_once)
    flow = simple(given, AT_MOST_ONCE, found.append)
    handle = flow.start(
        store,
        execution="local",
        max_rows_per_epoch=10,
        restart=AT_ONCE,
        on_status=told.append,
    )
    until(lambda: bool(told) and told[-1].skipped_rows > 0)
    given.extend(numbers(40, 35))
    until(lambda: len(found) == 15)
    handle.stop()
    assert sorted(found) == [*range(10), *range(35, 40)]
    assert told[-1].skipped_rows == 25
    assert seen(store) == 15


def until(holds: Callable[[], bool]) -> None:
    """Wait for progress."""
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.01)


def test_a_guarantee_may_change_at_every_start(tmp_path: Path) -> None:
    store, given, found = str(tmp_path / "s"), numbers(0), list[int]()
    order: tuple[Guarantee, ...] = (
        EXACTLY_ONCE,
        AT_MOST_ONCE,
        EXACTLY_ONCE,
        AT_LEAST_ONCE,
        AT_MOST_ONCE,
        AT_LEAST_ONCE,
        EXACTLY_ONCE,
    )
    decided = []
    for turn, guarantee in enumerate(order):
        before = given[-1:]
        given += numbers(10 * turn + 10, len(given))
        run(simple(given, guarantee, found.append), store, max_rows_per_epoch=10)
        newest = Catalog(open_storage(store)).newest()
        assert newest is not None
        decided.append(newest.guarantee)
        assert len(found) >= len(given) - len(before)
    assert decided == list(order)
    assert seen(store) == 70
    # A start commits the newest epoch once more, unless it was at most once, or its
    # rows left with their tasks: a function cannot say what it has.
    again = Counter(found)
    assert {n for n, times in again.items() if times == 2} == {
        *range(10),  # exactly once, before a change to at most once
        *range(20, 30),  # exactly once, before a change to at least once
    }
    assert again.keys() == set(range(70))


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_file_sinks_stay_whole_when_the_guarantee_changes(
    tmp_path: Path, guarantee: Guarantee
) -> None:
    store, out = str(tmp_path / "s"), tmp_path / "out"
    given = numbers(0)
    for each in (EXACTLY_ONCE, guarantee, EXACTLY_ONCE, guarantee):
        given += numbers(len(given) + 10, len(given))
        flow = rl.Flow("files", guarantee=each)
        flow.read(rows("n long", given), uid="in").write(
            rl.sinks.files(str(out), format="json"), uid="out"
        )
        run(flow, store, max_rows_per_epoch=4)
    lines = [
        line
        for file in out.glob("epoch=*/*.json")
        for line in file.read_text().splitlines()
    ]
    assert sorted(lines) == sorted(f'{{"n":{n}}}' for n in range(40))


def test_behind_an_at_least_once_region_rows_are_those_decided(tmp_path: Path) -> None:
    store, found, sink = str(tmp_path / "s"), list[int](), rl.sinks.memory()
    flow = rl.Flow("behind", key_groups=4)
    read = flow.read(rows("n long", numbers(30)), uid="in")
    loose = read.region("loose", guarantee=AT_LEAST_ONCE, uid="to-loose")
    counted = loose.key_by("n").process(Counted(), uid="counted")
    take = failing(found, 3, 17)
    counted.write(rl.sinks.for_each_row(lambda row, _: take(row["n"])), uid="out")
    counted.region("strict", uid="to-strict").write(sink, uid="strict")
    run(flow, store, max_rows_per_epoch=10, restart=AT_ONCE)
    assert max(Counter(found).values()) == 2
    assert sorted(sink.rows()) == numbers(30)


@pytest.mark.parametrize("protocol", get_args(Protocol))
@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_snapshots_over_loose_regions_are_consistent(
    tmp_path: Path, protocol: Protocol, guarantee: Guarantee
) -> None:
    store, sink = str(tmp_path / "s"), rl.sinks.memory()
    flow = flow_of(200, tmp_path, guarantee, sink=sink)
    handle = flow.start(store, execution="local", max_rows_per_epoch=7)
    named = handle.savepoint("then", protocol=protocol)
    handle.stop()
    main = Catalog(open_storage(store)).manifest(named.regions["main"])
    read = main.inputs["events"].end
    flying = Counter({span.channel: span.rows for span in named.in_flight})
    for region in ("loose", "strict"):
        # What main has handed on is in the state of the region, or in flight to it.
        at = rl.open(store).at("then").state(f"repeat-{region}").to_arrow().to_pylist()
        assert sum(r["count"] for r in at) + flying[f"to-{region}"] == read
    run(flow_of(200, tmp_path, guarantee, sink=sink), store)
    assert state(store, "repeat-loose") == state_after([*range(200)])
    rl.stores.restore_all(f"{store}@then")
    run(flow_of(200, tmp_path, guarantee, sink=sink), store)
    assert state(store, "repeat-loose") == state_after([*range(200)])
    assert state(store, "repeat-strict") == state_after([*range(200)])


def test_repeat_is_what_the_oracle_says() -> None:
    flow = rl.Flow("one", key_groups=4)
    read = flow.read(rl.testing.rows("n long, key string, at timestamp", []), uid="in")
    read = read.event_time("at", delay="0 seconds")
    read.key_by("key").process(Repeat(), uid="repeat").write(rl.sinks.memory())
    found = rl.testing.run_local(flow, events(20), epoch_rows=3).rows()
    assert Counter(found) == Counter(
        [("event", n) for n in range(20)] + [("timer", n) for n in range(14)]
    )
