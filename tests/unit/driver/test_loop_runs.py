"""Loops: what a flow feeds back comes round in a later epoch, until none is left."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import EndlessLoopError, InvalidFlowError, StateSchemaError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage.open import open_storage
from riverlock.testing import rows, run_local

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "user string, left int"
REGIONS = [None, "behind"]


class Tries(rl.Process):
    """Sends a record round until its counter is down."""

    output = "user string, tries long"
    tries = rl.Value("long", default=0)
    retry = rl.SideOutput(COLUMNS)

    def on_event(self, record: Any, ctx: rl.Context) -> Any:
        self.tries += 1
        if record.left > 0:
            ctx.emit(self.retry, (record.user, record.left - 1))
        else:
            yield record.user, self.tries


def same(record: Any) -> bool:
    return True


def retrying(
    given: list[Any], sink: Any, *, behind: str | None = None, **options: Any
) -> rl.Flow:
    """Return a flow with a loop: over one region, or over two."""
    flow = rl.Flow("retrying", key_groups=8)
    new = flow.read(rows(COLUMNS, given), uid="new")
    again = flow.loop(COLUMNS, uid="again", **options)
    tried = new.union(again).key_by("user").process(Tries(), uid="tries")
    retry = tried.side("retry")
    if behind is not None:
        retry = retry.region(behind, uid="over").filter(same, uid="same")
    retry.feed(again)
    tried.write(sink, uid="out")
    return flow


def run(flow: rl.Flow, store: str, **options: Any) -> Any:
    """Run a flow on the local engine until its input ends."""
    return flow.run(store, execution="local", available_now=True, **options)


def tries(store: str) -> dict[str, int]:
    """Return how often each user's records were handled."""
    found = rl.open(store).state("tries").to_arrow().to_pylist()
    return {row["user"]: row["tries"] for row in found}


def expected(given: list[Any]) -> Counter[str]:
    """Return the same, computed in plain Python."""
    found: Counter[str] = Counter()
    for user, left in given:
        found[user] += left + 1
    return found


def some(count: int) -> list[tuple[str, int]]:
    """Return records that come round different numbers of times."""
    return [(f"u{n % 5}", n * 7 % 6) for n in range(count)]


@pytest.mark.parametrize("behind", REGIONS)
@pytest.mark.parametrize("rows_per_epoch", [2, 1000])
def test_rows_come_round_until_none_is_left(
    tmp_path: Path, behind: str | None, rows_per_epoch: int
) -> None:
    store, sink, given = str(tmp_path / "s"), rl.sinks.memory(), some(12)
    status = run(
        retrying(given, sink, behind=behind), store, max_rows_per_epoch=rows_per_epoch
    )
    assert status.loops == {"again": 0}
    assert tries(store) == expected(given)
    assert len(sink.rows()) == len(given)
    assert Catalog(open_storage(store)).flow().features == ("regions",)


@pytest.mark.parametrize("behind", REGIONS)
def test_a_run_continues_with_what_is_in_the_loop(
    tmp_path: Path, behind: str | None
) -> None:
    store, given = str(tmp_path / "s"), some(10)
    shown = []
    for _ in range(4):
        status = run(
            retrying(given, rl.sinks.memory(), behind=behind), store, max_epochs=2
        )
        shown.append(status.loops["again"])
    assert any(shown) or behind  # where rows may be in the other channel
    given += [("late", 3)]
    run(retrying(given, rl.sinks.memory(), behind=behind), store)
    assert tries(store) == expected(given)


@pytest.mark.parametrize("behind", REGIONS)
def test_a_loop_that_does_not_empty_is_stopped_by_its_bound(
    tmp_path: Path, behind: str | None
) -> None:
    store, given = str(tmp_path / "s"), [("a", 25), ("b", 1)]
    sink = rl.sinks.memory()
    with pytest.raises(EndlessLoopError) as told:
        run(retrying(given, sink, behind=behind, max_rounds=3), store)
    error = told.value
    assert (error.loop, error.max_rounds, error.region) == ("again", 3, "main")
    assert error.rows == 1
    assert "'same'" in str(error) if behind else "'tries'" in str(error)
    assert "max_rounds" in error.hint
    # Nothing is lost: with a larger bound it goes on.
    assert tries(store)["a"] >= 4
    run(retrying(given, sink, behind=behind, max_rounds=200), store)
    assert tries(store) == expected(given)


def test_exactly_as_many_rounds_as_the_bound_are_made(tmp_path: Path) -> None:
    given, sink = [("a", 4), ("b", 2)], rl.sinks.memory()
    run(retrying(given, sink, max_rounds=4), str(tmp_path / "s"))
    with pytest.raises(EndlessLoopError):
        run(retrying(given, sink, max_rounds=3), str(tmp_path / "t"))
    assert tries(str(tmp_path / "t")) == {"a": 4, "b": 3}
    # A round that takes several epochs is one.
    given = [(f"u{n}", 3) for n in range(5)]
    run(retrying(given, sink, max_rounds=3), str(tmp_path / "u"), max_rows_per_epoch=2)


def test_rounds_count_anew_when_something_else_comes_in(tmp_path: Path) -> None:
    given = [("a", 2)] * 10
    run(
        retrying(given, rl.sinks.memory(), max_rounds=3),
        str(tmp_path / "s"),
        max_rows_per_epoch=2,
    )
    assert tries(str(tmp_path / "s")) == {"a": 30}


def test_run_local_runs_loops() -> None:
    given = some(6)
    made = run_local(retrying([], rl.sinks.memory()), given, epoch_rows=2)
    last: dict[str, int] = {}
    for user, tried in made.rows():
        last[user] = max(tried, last.get(user, 0))
    assert len(made.rows()) == len(given)
    assert last == expected(given)


class Window(rl.Process):
    """Sends what it gets round once, a minute older if it says so."""

    output = "user string, at timestamp"
    retry = rl.SideOutput("user string, at timestamp, older int, round int")
    seen = rl.Value("long", default=0)

    def on_event(self, record: Any, ctx: rl.Context) -> Any:
        self.seen += 1
        yield record.user, record.at
        if record.round == 0:
            at = record.at - timedelta(seconds=record.older)
            ctx.emit(self.retry, (record.user, at, 0, 1))


def counted(given: list[Any], out: Any, late: Any, *, bounded: bool) -> rl.Flow:
    flow = rl.Flow("counted", key_groups=8)
    columns = "user string, at timestamp, older int, round int"
    new = flow.read(rows(columns, given, bounded=bounded), uid="new")
    again = flow.loop(columns, uid="again").event_time("at", uid="again-time")
    all_rows = new.event_time("at", uid="time").union(again)
    sent = all_rows.key_by("user").process(Window(), uid="sends")
    sent.side("retry").feed(again)
    windows = all_rows.key_by("user").window(rl.tumbling("1 minute"))
    found = windows.apply(
        lambda key, window, found: [(key, window.start, len(found))],
        "user string, minute timestamp, n long",
        uid="w",
    )
    found.write(out, uid="out")
    found.late.write(late, uid="late")
    return flow


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def test_rows_keep_their_time_and_do_not_hold_time_back(tmp_path: Path) -> None:
    out, late = rl.sinks.memory(), rl.sinks.memory()
    # The second makes the first minute be over; the third comes round into it, late.
    given = [("a", at(10), 0, 0), ("a", at(70), 0, 0), ("a", at(80), 60, 0)]
    flow = counted(given, out, late, bounded=False)
    run(flow, str(tmp_path / "s"), max_rows_per_epoch=1)
    # Rows of the loop are read in the epochs between: the first in time, in its minute.
    assert [(r[0], r[1]) for r in out.rows()] == [("a", START)]
    assert [(r[1], r[3]) for r in late.rows()] == [(at(20), 1)]


@pytest.mark.parametrize("rows_per_epoch", [1, 1000])
def test_the_end_is_told_when_the_loop_is_empty(
    tmp_path: Path, rows_per_epoch: int
) -> None:
    out, late = rl.sinks.memory(), rl.sinks.memory()
    given = [("a", at(n), 0, 0) for n in range(8)]
    flow = counted(given, out, late, bounded=True)
    run(flow, str(tmp_path / "s"), max_rows_per_epoch=rows_per_epoch)
    # One window with all rows, those that came round included.
    assert out.rows() == [("a", START, 16)]
    assert late.rows() == []


class Later(rl.Process):
    """Tries again at growing intervals of event time, at most four times."""

    output = "user string, tries int"
    tries = rl.Value("int", default=0)
    retry = rl.SideOutput("user string, at timestamp")

    def on_event(self, record: Any, ctx: rl.Context) -> Any:
        self.tries += 1
        if self.tries < 4:
            ctx.set_timer(record.at + timedelta(minutes=2**self.tries))
        else:
            yield record.user, self.tries

    def on_timer(self, at: datetime, ctx: rl.Context) -> None:
        ctx.emit(self.retry, (ctx.key, at))


@pytest.mark.parametrize("behind", REGIONS)
def test_timers_that_fire_at_the_end_feed_the_loop(
    tmp_path: Path, behind: str | None
) -> None:
    sink = rl.sinks.memory()
    flow = rl.Flow("later", key_groups=8)
    given = [(f"u{n}", at(n)) for n in range(5)]
    new = flow.read(rows("user string, at timestamp", given, bounded=True), uid="new")
    again = flow.loop("user string, at timestamp", uid="again").event_time("at")
    both = new.event_time("at", uid="time").union(again)
    tried = both.key_by("user").process(Later(), uid="tried")
    retry = tried.side("retry")
    if behind is not None:
        retry = retry.region(behind, uid="over").filter(same, uid="same")
    retry.feed(again)
    tried.write(sink, uid="out")
    status = run(flow, str(tmp_path / "s"))
    assert Counter(sink.rows()) == Counter((user, 4) for user, _ in given)
    assert status.loops == {"again": 0}


@pytest.mark.parametrize("behind", REGIONS)
def test_epochs_of_a_loop_do_not_keep_each_other_for_ever(
    tmp_path: Path, behind: str | None
) -> None:
    store, given = str(tmp_path / "s"), [("a", 20)]
    run(retrying(given, rl.sinks.memory(), behind=behind), store)
    storage = open_storage(store)
    later = datetime.now(UTC) + timedelta(days=30)
    keep = Retention(epochs=3, grace=timedelta(0))
    regions = ("main",) if behind is None else ("main", behind)
    for _ in range(4):
        for region in regions:
            sweep(Catalog(storage, region), keep, now=later)
    for region in regions:
        assert len(Catalog(storage, region).epochs()) <= 8
    assert rl.stores.verify(store).is_whole
    given += [("b", 3)]
    run(retrying(given, rl.sinks.memory(), behind=behind), store)
    assert tries(store) == expected(given)


def test_an_idle_loop_keeps_no_epochs(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), [("a", 1)]
    for n in range(6):
        given += [(f"u{n}", 0)]
        run(retrying(given, rl.sinks.memory()), store)
    catalog = Catalog(open_storage(store))
    newest = catalog.newest()
    assert newest is not None
    assert newest.inputs["again-read"].end["epoch"] >= newest.epoch - 1


def test_a_loop_with_rows_is_not_left_in_silence(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), [("a", 5), ("b", 5)]
    run(retrying(given, rl.sinks.memory()), store, max_epochs=2)

    def without() -> rl.Flow:
        flow = rl.Flow("retrying", key_groups=8)
        new = flow.read(rows(COLUMNS, given), uid="new")
        new.key_by("user").process(Tries(), uid="tries").write(
            rl.sinks.memory(), uid="out"
        )
        return flow

    with pytest.raises(StateSchemaError, match=r"'again'.*2 rows that wait in it"):
        run(without(), store)
    assert tries(store) == {"a": 2, "b": 2}
    run(without().retired("again"), store)
    assert tries(store) == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("fed", "hint"),
    [
        ("usr string, left int", "column 'usr': did you mean 'user'?"),
        ("user string, left long", "cast"),
        ("user string", "cast"),
    ],
)
def test_what_feeds_a_loop_must_have_its_columns(fed: str, hint: str) -> None:
    flow = rl.Flow("wrong")
    new = flow.read(rows(fed, []), uid="new")
    again = flow.loop(COLUMNS, uid="again")
    with pytest.raises(InvalidFlowError, match="what feeds loop 'again'") as told:
        new.feed(again)
    assert hint in told.value.hint
    assert "new.feed(again)" in told.value.line


def test_columns_that_are_known_late_are_checked_at_the_start() -> None:
    class Wrong(Tries):
        retry = rl.SideOutput("user string, lft int")

    flow = rl.Flow("wrong")
    again = flow.loop(COLUMNS, uid="again")
    new = flow.read(rows(COLUMNS, []), uid="new").union(again)
    tried = new.key_by("user").count(uid="n")
    tried.feed(again)
    with pytest.raises(InvalidFlowError, match="what feeds loop 'again'") as told:
        flow.check(execution="local")
    assert "tried.feed(again)" in told.value.line


def test_columns_may_come_in_any_order(tmp_path: Path) -> None:
    class Turned(Tries):
        retry = rl.SideOutput("left int, user string")

        def on_event(self, record: Any, ctx: rl.Context) -> Any:
            self.tries += 1
            if record.left:
                ctx.emit(self.retry, (record.left - 1, record.user))

    flow = rl.Flow("turned", key_groups=8)
    again = flow.loop(COLUMNS, uid="again")
    new = flow.read(rows(COLUMNS, [("a", 3)]), uid="new").union(again)
    new.key_by("user").process(Turned(), uid="tries").side("retry").feed(again)
    run(flow, str(tmp_path / "s"))
    assert tries(str(tmp_path / "s")) == {"a": 4}


def test_loops_that_are_not_closed_rightly_are_refused() -> None:
    flow = rl.Flow("open")
    new = flow.read(rows(COLUMNS, []), uid="new")
    again = flow.loop(COLUMNS, uid="again")
    new.union(again).write(rl.sinks.memory(), uid="out")
    with pytest.raises(InvalidFlowError, match="a stream that feeds it") as told:
        flow.check(execution="local")
    assert "again = flow.loop(COLUMNS" in told.value.line
    with pytest.raises(InvalidFlowError, match="a stream of the same flow"):
        new.feed(rl.Flow("other").loop(COLUMNS, uid="again"))
    with pytest.raises(InvalidFlowError, match=r"what flow.loop\(\) returned"):
        new.feed(new)
    new.feed(again)
    with pytest.raises(InvalidFlowError, match="one stream that feeds it"):
        new.feed(again)


def test_a_loop_that_nobody_reads_is_refused() -> None:
    flow = rl.Flow("unread")
    new = flow.read(rows(COLUMNS, []), uid="new")
    new.feed(flow.loop(COLUMNS, uid="again"))
    with pytest.raises(InvalidFlowError, match="a step that reads it"):
        flow.check(execution="local")


def test_a_loop_from_which_nothing_comes_back_is_refused() -> None:
    flow = rl.Flow("straight")
    new = flow.read(rows(COLUMNS, []), uid="new")
    new.region("behind", uid="over").write(rl.sinks.memory(), uid="out")
    again = flow.loop(COLUMNS, uid="again", region="behind")
    again.write(rl.sinks.memory(), uid="more")
    new.feed(again)
    with pytest.raises(InvalidFlowError, match="to be fed by that region") as told:
        flow.check(execution="local")
    assert ".region('behind')" in told.value.hint


def test_a_loop_enters_the_region_that_it_names(tmp_path: Path) -> None:
    store, sink = str(tmp_path / "s"), rl.sinks.memory()

    def flow(region: str) -> rl.Flow:
        made = rl.Flow("named", key_groups=8)
        new = made.read(rows(COLUMNS, some(10)), uid="new")
        again = made.loop(COLUMNS, uid="again", region=region)
        both = new.region("work", uid="to-work").union(again)
        tried = both.key_by("user").process(Tries(), uid="tries")
        tried.side("retry").feed(again)
        tried.write(sink, uid="out")
        return made

    with pytest.raises(InvalidFlowError, match="streams of different regions") as told:
        flow("main")
    assert "flow.loop(region=...)" in told.value.hint
    run(flow("work"), store)
    assert tries(store) == expected(some(10))


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_bound_that_makes_no_sense_is_refused(rounds: int) -> None:
    with pytest.raises(InvalidFlowError, match="max_rounds"):
        rl.Flow("none").loop(COLUMNS, max_rounds=rounds)
