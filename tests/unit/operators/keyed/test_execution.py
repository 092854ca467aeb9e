"""What a process sees and in which order, through the harness."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from riverlock.core.errors import StateError, StateTypeError, UserCodeError
from riverlock.core.times import hours, minutes, seconds
from riverlock.operators.keyed.execution import Execution
from riverlock.program.process import Process, SideOutput
from riverlock.state.spec import List, Map, Reducing, Value
from riverlock.testing import Harness, harness

T = datetime(2024, 1, 1, tzinfo=UTC)
INPUT = "k string, v long, at timestamp"


def make(process: Process, **options: Any) -> Harness:
    options.setdefault("input", INPUT)
    options.setdefault("event_time", "at" if options["input"] == INPUT else None)
    return harness(process, key=options.pop("key", "k"), **options)


def row(k: str | None, v: int | None = 1, at: datetime | None = T) -> Any:
    return (k, v, at)


class Tell(Process):
    """Tells everything that happens to a key."""

    output = "k string, what string, time timestamp"

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, f"event {record.v}", ctx.time

    def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
        yield ctx.key, f"timer {(at - T).total_seconds():.0f}", ctx.time


def told(h: Harness, key: str | None = "a") -> list[str]:
    return [what for k, what, _ in h.output if k == key]


# Order


def test_records_of_a_key_are_handled_in_input_order() -> None:
    h = make(Tell())

    h.send(row("b", 1), row("a", 2), row("b", 3), row("a", 4))

    assert told(h, "a") == ["event 2", "event 4"]
    assert told(h, "b") == ["event 1", "event 3"]


def test_context_has_key_times_and_epoch() -> None:
    seen: list[Any] = []

    class Look(Process):
        def on_event(self, record: Any, ctx: Any) -> None:
            seen.append((ctx.key, ctx.time, ctx.watermark, ctx.now, ctx.epoch))

    h = make(Look())
    h.send(row("a"))
    h.advance_watermark(T)
    h.advance_clock("1 hour")
    h.send(row("a", at=None))

    start = datetime(2024, 1, 1, tzinfo=UTC)
    assert seen == [("a", T, None, start, 1), ("a", None, T, start + hours(1), 4)]


def test_events_without_event_time_do_not_see_the_time_of_a_timer() -> None:
    class Late(Tell):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(T)
            yield ctx.key, f"event {record.v}", ctx.time

    h = harness(Late(), key="k", input="k string, v long")
    h.send(("a", 1))
    h.watermark = T
    h.send(("a", 2))

    assert [(w, t) for _, w, t in h.output] == [
        ("event 1", None),
        ("timer 0", T),
        ("event 2", None),
        ("timer 0", T),
    ]


# Timers


class Alarm(Tell):
    """Sets a timer ``v`` seconds after T."""

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.set_timer(T + seconds(record.v))
        yield from super().on_event(record, ctx)


def test_timers_fire_by_time_when_the_watermark_reaches_them() -> None:
    h = make(Alarm())
    h.send(row("a", 30), row("a", 10), row("a", 20), row("a", 10))
    assert h.timers("a") == [T + seconds(s) for s in (10, 20, 30)]
    h.clear_output()

    h.advance_watermark(T + seconds(9))
    assert told(h) == []
    h.advance_watermark(T + seconds(20))

    assert told(h) == ["timer 10", "timer 20"]
    assert [t for _, _, t in h.output] == [T + seconds(10), T + seconds(20)]
    assert h.timers("a") == [T + seconds(30)]


def test_due_timers_fire_before_the_records_of_their_epoch() -> None:
    h = make(Alarm())
    h.send(row("a", 10))
    h.clear_output()

    h.watermark = T + seconds(10)
    h.send(row("a", 99))

    assert told(h) == ["timer 10", "event 99"]


def test_timer_in_the_past_fires_after_the_records_of_its_key() -> None:
    h = make(Alarm())
    h.advance_watermark(T + seconds(50))

    h.send(row("a", 10), row("a", 5))

    assert told(h) == ["event 10", "event 5", "timer 5", "timer 10"]
    assert h.timers("a") == []


def test_timer_fires_once_however_often_it_is_set() -> None:
    h = make(Alarm())
    h.send(row("a", 10), row("a", 10))
    h.send(row("a", 10))
    h.clear_output()

    h.advance_watermark(T + hours(1))
    h.advance_watermark(T + hours(2))

    assert told(h) == ["timer 10"]


def test_deleted_timer_does_not_fire() -> None:
    class Cancel(Alarm):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            if record.v < 0:
                ctx.delete_timer(T + seconds(-record.v))
            else:
                yield from super().on_event(record, ctx)

    h = make(Cancel())
    h.send(row("a", 10), row("a", 20), row("a", -20), row("a", -77))
    h.send(row("a", 30))
    h.send(row("a", -30))
    h.clear_output()

    h.advance_watermark(T + hours(1))

    assert told(h) == ["timer 10"]


def test_timer_deleted_by_an_earlier_timer_does_not_fire() -> None:
    class Chain(Alarm):
        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            ctx.delete_timer(T + seconds(20))
            yield from super().on_timer(at, ctx)

    h = make(Chain())
    h.send(row("a", 10), row("a", 20), row("a", 30))
    h.clear_output()

    h.advance_watermark(T + hours(1))

    assert told(h) == ["timer 10", "timer 30"]
    assert h.timers("a") == []


def test_timer_set_by_a_timer_for_a_due_later_time_fires_in_the_same_epoch() -> None:
    class Chain(Alarm):
        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(at + seconds(10))
            yield from super().on_timer(at, ctx)

    h = make(Chain())
    h.send(row("a", 10), row("a", 25))
    h.clear_output()

    h.advance_watermark(T + seconds(40))

    assert told(h) == [f"timer {s}" for s in (10, 20, 25, 30, 35, 40)]
    assert h.timers("a") == [T + seconds(45), T + seconds(50)]


def test_timer_that_sets_itself_again_fires_once_per_epoch() -> None:
    class Stubborn(Alarm):
        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(at)
            yield from super().on_timer(at, ctx)

    h = make(Stubborn())
    h.send(row("a", 10))
    h.clear_output()

    h.advance_watermark(T + seconds(40))
    assert told(h) == ["timer 10"]
    h.send(row("a", 10))
    assert told(h) == ["timer 10", "timer 10", "event 10"]


def test_timers_of_a_key_are_not_all_looked_at_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    original = Execution._due_of

    def counting(self: Execution, timers: Any) -> Iterator[tuple[int, int]]:
        nonlocal looked_at
        looked_at += len(timers)
        return original(self, timers)

    h = make(Alarm())
    h.send(*(row("a", v) for v in range(1, 201)))
    monkeypatch.setattr(Execution, "_due_of", counting)

    h.advance_watermark(T + seconds(200))

    assert told(h)[200:] == [f"timer {v}" for v in range(1, 201)]
    assert looked_at <= 400


def test_processing_timers_follow_the_clock_and_have_no_event_time() -> None:
    class Timeout(Tell):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(ctx.now + minutes(5), processing=True)
            yield from ()

    h = make(Timeout())
    h.send(row("a"))
    h.advance_watermark(T + hours(99))
    assert h.output == []
    assert h.timers("a", processing=True) == [T + minutes(5)]

    h.advance_clock("5 minutes")

    assert h.output == [("a", "timer 300", None)]
    assert h.timers("a", processing=True) == []


def test_context_lists_pending_timers() -> None:
    seen: list[Any] = []

    class Look(Process):
        def on_event(self, record: Any, ctx: Any) -> None:
            ctx.set_timer(T + seconds(record.v))
            ctx.delete_timer(T + seconds(7))
            seen.append([(t - T).seconds for t in ctx.timers()])
            assert ctx.timers(processing=True) == []

    h = make(Look())
    h.send(row("a", 7), row("a", 5), row("b", 1))
    h.send(row("a", 2))

    assert seen == [[], [5], [1], [2, 5]]


def test_timers_of_many_keys_fire_for_each_of_them() -> None:
    h = make(Alarm())
    names = [f"key {i}" for i in range(50)]
    h.send(*(row(k, 5) for k in names))
    h.clear_output()

    h.advance_watermark(T + minutes(1))

    assert sorted(k for k, _, _ in h.output) == sorted(names)


def test_set_timer_wants_a_time_zone() -> None:
    class Naive(Process):
        def on_event(self, record: Any, ctx: Any) -> None:
            ctx.set_timer(datetime(2024, 1, 1))  # noqa: DTZ001

    with pytest.raises(UserCodeError, match="time zone"):
        make(Naive()).send(row("a"))


# State


class Sum(Process):
    output = "k string, total double"
    total = Value("double", default=0)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        assert type(self.total) is float
        if record.v is None:
            self.total = None
        else:
            self.total += record.v
        yield ctx.key, self.total


def test_value_begins_with_its_default_and_is_remembered_per_key() -> None:
    h = make(Sum())

    h.send(row("a", 1), row("b", 5))
    h.send(row("a", 2))

    assert h.output == [("a", 1.0), ("b", 5.0), ("a", 3.0)]
    assert (h.state("total", "a"), h.state("total", "nobody")) == (3.0, None)


@pytest.mark.parametrize("together", [True, False])
def test_none_means_unset_also_for_the_next_record_of_the_epoch(
    together: bool,
) -> None:
    h = make(Sum())
    rows = [row("a", 1), row("a", None), row("a", 2)]

    if together:
        h.send(*rows)
    else:
        for r in rows:
            h.send(r)

    assert h.output == [("a", 1.0), ("a", None), ("a", 2.0)]


def test_deleted_value_is_unset_and_deleting_twice_is_no_error() -> None:
    class Forget(Process):
        x = Value("long", default=7)
        y = Value("long", ttl="1 day")
        best = Reducing("long", max)

        def on_event(self, record: Any, ctx: Any) -> None:
            if record.v:
                self.x = self.y = record.v
                self.best.add(record.v)
            else:
                del self.x
                del self.x
                del self.y
                del self.best
                assert self.x == 7
                assert self.y is None
                assert self.best.value is None
                assert "x" not in vars(self)

    h = make(Forget())
    h.send(row("a", 5))
    assert [h.state(n, "a") for n in ("x", "y", "best")] == [5, 5, 5]
    h.send(row("a", 0))

    assert [h.state(n, "a") for n in ("x", "y", "best")] == [None] * 3
    assert h.keys() == []


@pytest.mark.parametrize("ttl", [None, "1 day"])
def test_mutable_default_is_copied_and_stored_only_when_changed(
    ttl: str | None,
) -> None:
    class Collect(Process):
        items = Value("array<long>", default=[], ttl=ttl)

        def on_event(self, record: Any, ctx: Any) -> None:
            if record.v:
                self.items.append(record.v)
            else:
                assert self.items == []

    h = make(Collect())
    h.send(row("a", 0), row("b", 1), row("c", 0))
    h.send(row("b", 2), row("c", 0))

    assert [h.state("items", k) for k in "abc"] == [None, [1, 2], None]
    assert h.keys() == ["b"]


def test_values_changed_in_place_are_noticed() -> None:
    class Nested(Process):
        tree = Value("struct<n:long,tags:array<string>>", default={"n": 0, "tags": []})
        index = Value("map<string,array<long>>", default={})

        def on_event(self, record: Any, ctx: Any) -> None:
            self.tree.n += 1
            self.tree.tags.append(str(record.v))
            self.index.setdefault("x", []).append(record.v)

    h = make(Nested())
    h.send(row("a", 1), row("a", 2))
    h.send(row("a", 3))

    tree = h.state("tree", "a")
    assert (tree.n, tree.tags) == (3, ["1", "2", "3"])
    assert h.state("index", "a") == {"x": [1, 2, 3]}


@dataclasses.dataclass
class Visit:
    page: str
    at: datetime
    seconds: float | None = None


def test_dataclasses_are_stored_and_given_back() -> None:
    class Track(Process):
        last = Value(Visit)
        visits = List(Visit)
        by_page = Map(str, Visit)
        history = Value(list[Visit], default=[])

        def on_event(self, record: Any, ctx: Any) -> None:
            if self.last is not None:
                assert type(self.last) is Visit
                assert all(type(v) is Visit for v in (*self.visits, *self.history))
                self.last.seconds = (record.at - self.last.at).total_seconds()
                self.history.append(self.last)
            visit = Visit(str(record.v), record.at)
            self.last = visit
            self.visits.append(visit)
            self.by_page[visit.page] = visit

    h = make(Track())
    h.send(row("a", 1, T), row("a", 2, T + seconds(5)))
    h.send(row("a", 3, T + seconds(9)))

    assert h.state("last", "a") == Visit("3", T + seconds(9))
    assert [v.page for v in h.state("visits", "a")] == ["1", "2", "3"]
    assert [v.seconds for v in h.state("history", "a")] == [5.0, 4.0]
    assert list(h.state("by_page", "a")) == ["1", "2", "3"]


def test_dataclass_field_that_may_not_be_none_is_refused() -> None:
    class Bad(Process):
        last = Value(Visit)

        def on_event(self, record: Any, ctx: Any) -> None:
            self.last = Visit(None, T)  # type: ignore[arg-type]

    with pytest.raises(StateTypeError, match="'page' is None"):
        make(Bad()).send(row("a"))


@pytest.mark.parametrize("together", [True, False])
def test_what_is_assigned_is_normal_for_the_next_record(together: bool) -> None:
    kinds: list[Any] = []

    class Assign(Process):
        number = Value("double")
        small = Value("float")
        many = Value("array<double>")
        place = Value("struct<x:long>")
        when = Value("timestamp")

        def on_event(self, record: Any, ctx: Any) -> None:
            if self.many is not None:
                kinds.append(
                    (
                        self.number,
                        type(self.number),
                        self.small,
                        self.many,
                        self.place.x,
                        self.when.tzinfo,
                    )
                )
            self.number = 1
            self.small = 0.1
            self.many = (1, 2)
            self.place = {"x": 3}
            self.when = T.astimezone()

    h = make(Assign())
    if together:
        h.send(row("a"), row("a"))
    else:
        h.send(row("a"))
        h.send(row("a"))

    small = 0.10000000149011612
    assert kinds == [(1.0, float, small, [1.0, 2.0], 3, UTC)]


@pytest.mark.parametrize("together", [True, False])
def test_rows_keep_what_state_was_when_they_were_given(together: bool) -> None:
    class Emit(Process):
        output = "k string, v array<long>, l array<long>, m map<long,long>"
        values = Value("array<long>", default=[])
        listed = List("long")
        mapped = Map("long", "long")
        side = SideOutput("v array<long>")

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            self.values.append(record.v)
            self.listed.append(record.v)
            self.mapped[record.v] = record.v
            ctx.emit(self.side, (self.values,))
            yield ctx.key, self.values, self.listed, self.mapped

    h = make(Emit())
    if together:
        h.send(row("a", 1), row("b", 9), row("a", 2))
    else:
        for r in (row("a", 1), row("a", 2), row("b", 9)):
            h.send(r)

    assert h.output == [
        ("a", [1], [1], {1: 1}),
        ("a", [1, 2], [1, 2], {1: 1, 2: 2}),
        ("b", [9], [9], {9: 9}),
    ]
    assert h.side("side") == [([1],), ([1, 2],), ([9],)]


def test_state_shared_between_keys_by_mistake_is_stored_as_it_was() -> None:
    class Shared(Process):
        items = Value("array<long>")

        def open(self) -> None:
            self.buffer: list[int] = []

        def on_event(self, record: Any, ctx: Any) -> None:
            self.buffer.append(record.v)
            self.items = self.buffer

    h = make(Shared())
    h.send(row("a", 1), row("b", 2))

    assert sorted([h.state("items", "a"), h.state("items", "b")], key=len)[0] in (
        [1],
        [2],
    )


def test_lists_and_maps_read_naturally() -> None:
    class Natural(Process):
        recent = List("long")
        seen = Map("string", "long")

        def on_event(self, record: Any, ctx: Any) -> None:
            self.recent += [record.v]
            self.recent = [v for v in self.recent if v > 1]
            self.seen |= {str(record.v): record.v}
            assert self.seen.get(None) is None
            assert None not in self.seen
            assert self.recent[-1:] == [record.v] or record.v <= 1
            assert bool(self.recent) == (len(self.recent) > 0)

    h = make(Natural())
    h.send(row("a", 1), row("a", 2))
    h.send(row("a", 3))

    assert h.state("recent", "a") == [2, 3]
    assert h.state("seen", "a") == {"1": 1, "2": 2, "3": 3}


# Time to live


class Expire(Process):
    output = "k string, value long, recent array<long>, seen map<long,long>, best long"
    value = Value("long", ttl="10 minutes", default=-1)
    recent = List("long", ttl="10 minutes")
    seen = Map("long", "long", ttl="10 minutes")
    best = Reducing("long", max, ttl="10 minutes")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.v is not None:
            self.value = record.v
            self.recent.append(record.v)
            self.seen[record.v] = record.v
            self.best.add(record.v)
        yield ctx.key, self.value, self.recent, self.seen, self.best.value


def test_state_expires_after_its_time_to_live() -> None:
    h = make(Expire())
    h.send(row("a", 3))
    h.advance_clock("5 minutes")
    h.send(row("a", 1))
    h.clear_output()

    h.advance_clock("4 minutes 59 seconds")
    h.send(row("a", None))
    h.advance_clock("1 second")
    h.send(row("a", None))
    h.advance_clock("5 minutes")
    h.send(row("a", None))

    assert h.output == [
        ("a", 1, [3, 1], {1: 1, 3: 3}, 3),
        ("a", 1, [1], {1: 1}, 3),
        ("a", -1, [], {}, None),
    ]
    assert h.keys() == []


def test_expired_state_is_invisible_before_it_is_purged() -> None:
    h = make(Expire())
    h.send(row("a", 3))

    h.clock.advance("10 minutes")

    assert [h.state(n, "a") for n in ("value", "recent", "seen", "best")] == [
        None,
        [],
        {},
        None,
    ]


def test_list_goes_on_after_its_elements_expired() -> None:
    h = make(Expire())
    for _ in range(3):
        h.send(row("a", 1), row("a", 2))
        h.advance_clock("11 minutes")
    h.send(row("a", 5))

    assert h.state("recent", "a") == [5]
    assert h.restart(h.snapshot()).state("recent", "a") == [5]


# Scopes


class Grouped(Process):
    output = "k string, in_group long"
    n = Value("long", default=0, scope="group")
    names = Map("string", "long", scope="group")
    mine = Value("long", default=0)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.v == 0:
            raise ValueError("poison")
        self.n += 1
        self.mine += 1
        self.names[ctx.key] = self.mine
        yield ctx.key, self.n


def test_group_state_is_shared_by_the_keys_of_a_group() -> None:
    h = make(Grouped(), key_groups=1)

    h.send(row("a"), row("b"), row("a"))
    h.send(row("c"))

    assert h.output[-1] == ("c", 4)
    assert h.state("n", "whoever") == 4
    assert h.state("names", "whoever") == {"a": 2, "b": 1, "c": 1}
    assert h.restart(h.snapshot()).state("n", "a") == 4


def test_group_state_of_each_group_is_its_own() -> None:
    h = make(Grouped(), key_groups=128)
    names = [f"k{i}" for i in range(300)]

    h.send(*map(row, names))

    counts = {h.state("names", k)[k] for k in names}
    assert counts == {1}
    assert sum(len(set(h.state("names", k))) == h.state("n", k) for k in names) == 300


class Rules(Process):
    output = "k string, hit boolean"
    limit = Value("long", default=10, scope="broadcast")
    names = Map("string", "array<long>", scope="broadcast")
    total = Value("long", default=0)

    def on_broadcast(self, rule: Any, ctx: Any) -> None:
        assert ctx.key is None
        self.limit = rule.limit
        self.names.setdefault("all", []).append(rule.limit)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        self.total += record.v
        yield ctx.key, self.total > self.limit


def test_broadcast_state_is_seen_by_all_keys() -> None:
    h = make(Rules(), broadcast="limit long")
    h.send(row("a", 5), row("b", 50))
    h.broadcast({"limit": 1}, {"limit": 3})
    h.send(row("a", 0), row("c", 2))

    assert h.output == [("a", False), ("b", True), ("a", True), ("c", False)] or (
        sorted(h.output) == [("a", False), ("a", True), ("b", True), ("c", False)]
    )
    assert h.state("limit") == 3
    assert h.state("names") == {"all": [1, 3]}
    assert h.restart(h.snapshot()).state("limit") == 3


def test_broadcast_default_may_be_read_everywhere() -> None:
    class Reads(Process):
        output = "n long"
        rules = Value("array<long>", default=[], scope="broadcast")

        def on_broadcast(self, rule: Any, ctx: Any) -> None:
            self.rules.append(rule.limit)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield (len(self.rules),)

    h = make(Reads(), broadcast="limit long")
    h.send(row("a"))
    h.broadcast((1,))
    h.send(row("b"))

    assert h.output == [(0,), (1,)]


@pytest.mark.parametrize("how", ["value", "map", "in place"])
def test_broadcast_state_is_read_only_elsewhere(how: str) -> None:
    class Writes(Rules):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            if how == "value":
                self.limit = 5
            elif how == "map":
                self.names["x"] = []
            else:
                self.names["all"].append(9)
            yield from super().on_event(record, ctx)

    h = make(Writes(), broadcast="limit long")
    h.broadcast({"limit": 1})

    with pytest.raises((StateError, UserCodeError), match="on_broadcast"):
        h.send(row("a"))


@pytest.mark.parametrize("how", ["timer", "value", "list", "emit", "yield"])
def test_on_broadcast_cannot_touch_what_belongs_to_a_key(how: str) -> None:
    class Wrong(Process):
        total = Value("long", default=0)
        items = List("long")
        side = SideOutput("n long")

        def on_event(self, record: Any, ctx: Any) -> None:
            pass

        def on_broadcast(self, rule: Any, ctx: Any) -> Any:
            match how:
                case "timer":
                    ctx.set_timer(T)
                case "value":
                    self.total = 1
                case "list":
                    self.items.append(1)
                case "emit":
                    ctx.emit(self.side, (1,))
                case _:
                    return [(1,)]
            return None

    h = make(Wrong(), broadcast="limit long")

    with pytest.raises(UserCodeError, match="broadcast"):
        h.broadcast({"limit": 1})


def test_initial_rows_come_before_events() -> None:
    class Start(Sum):
        def on_initial(self, record: Any, ctx: Any) -> None:
            self.total = record.balance

    h = make(Start(), initial="k string, balance double")
    with h.epoch():
        h.send(row("a", 1))
        h.initial({"k": "a", "balance": 100.0}, {"k": "b", "balance": 7.0})

    assert h.output == [("a", 101.0)]
    assert h.state("total", "b") == 7.0


# Rows


@dataclasses.dataclass
class Out:
    k: str
    n: int


class Gives(Process):
    output = "k string, n long"

    def __init__(self, give: Any) -> None:
        self.give = give

    def on_event(self, record: Any, ctx: Any) -> Any:
        return self.give(record)


@pytest.mark.parametrize(
    "give",
    [
        lambda r: [(r.k, 1)],
        lambda r: [{"n": 1, "k": r.k}],
        lambda r: [Out(r.k, 1)],
        lambda r: [[r.k, 1]],
        lambda r: iter([(r.k, 1)]),
        lambda r: ((r.k, 1) for _ in range(1)),
        lambda r: ((r.k, 1),),
    ],
)
def test_rows_may_be_tuples_dicts_or_dataclasses(give: Any) -> None:
    h = make(Gives(give))

    assert h.send(row("a")) == [("a", 1)]
    assert h.rows() == [{"k": "a", "n": 1}]


def test_record_may_be_given_on_as_a_row() -> None:
    class Same(Process):
        output = "v long, k string"

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield record

    assert make(Same()).send(row("a", 4)) == [(4, "a")]


@pytest.mark.parametrize(
    ("give", "text"),
    [
        (lambda _: [(1,)], r"expected 2 values for columns \('k', 'n'\)"),
        (lambda _: [("a", 1, 2)], "expected 2 values"),
        (lambda _: [{"k": "a", "m": 1}], r"unknown columns \['m'\]"),
        (lambda _: {"k": "a"}, "yield the row"),
        (lambda _: "ab", "yield the row"),
        (lambda _: ("a", 1), "yield rows, or return a list"),
        (lambda _: 5, "not iterable"),
    ],
)
def test_bad_rows_name_operator_key_and_record(give: Any, text: str) -> None:
    h = make(Gives(give), uid="op")

    with pytest.raises(UserCodeError, match=text) as caught:
        h.send(row("ann"))

    assert (caught.value.operator, caught.value.key) == ("op", "ann")
    assert "v=1" in str(caught.value)


def test_rows_of_a_process_without_output_are_refused() -> None:
    class Silent(Process):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield (1,)

    with pytest.raises(UserCodeError, match="declares no output"):
        make(Silent()).send(row("a"))


def test_side_outputs_are_streams_of_their_own() -> None:
    class Odd(Process):
        odd = SideOutput("k string, why string")
        rest = SideOutput("n long")

        def on_event(self, record: Any, ctx: Any) -> None:
            ctx.emit(self.odd, (ctx.key, "because"))
            ctx.emit("rest", {"n": record.v})

    h = make(Odd())
    h.send(row("a", 3))

    assert (h.side("odd"), h.side("rest")) == ([("a", "because")], [(3,)])
    assert h.rows("rest") == [{"n": 3}]


def test_unknown_side_output_names_those_there_are() -> None:
    class Odd(Process):
        odd = SideOutput("k string")

        def on_event(self, record: Any, ctx: Any) -> None:
            ctx.emit("od", ("a",))

    with pytest.raises(UserCodeError, match="declared: odd"):
        make(Odd()).send(row("a"))


# Errors


def test_error_of_user_code_names_everything_one_needs() -> None:
    class Bad(Process):
        def on_event(self, record: Any, ctx: Any) -> None:
            _ = 1 // record.v

    with pytest.raises(UserCodeError) as caught:
        make(Bad(), uid="divide").send(row("a", 1), row("b", 0))

    error = caught.value
    assert (error.operator, error.key, error.epoch) == ("divide", "b", 1)
    text = str(error)
    assert "ZeroDivisionError" in text
    assert "test_execution.py" in text
    assert "_ = 1 // record.v" in text
    assert "Record(k='b', v=0" in text


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (Value("double"), "text"),
        (Value("long"), 1.5),
        (Value("long"), 1 << 63),
        (Value("long"), 1 << 70),
        (Value("long"), True),
        (Value("int"), 1 << 31),
        (Value("string"), b"x"),
        (Value("string"), "\ud800"),
        (Value("string"), object()),
        (Value("timestamp"), datetime(2024, 1, 1)),  # noqa: DTZ001
        (Value("array<long>"), [1, "x"]),
        (Value("struct<x:long>"), {"y": 1}),
        (Value("decimal(3,1)"), 1.5),
        (Value("long", ttl="1 day"), "text"),
        (Value("long", ttl="1 day"), 1 << 63),
        (Reducing("long", max), "text"),
    ],
)
def test_value_that_cannot_be_stored_names_operator_variable_and_key(
    declared: Any, value: Any
) -> None:
    class Bad(Process):
        spent = declared

        def on_event(self, record: Any, ctx: Any) -> None:
            if isinstance(declared, Reducing):
                self.spent.add(value)
            else:
                self.spent = value

    with pytest.raises(StateTypeError) as caught:
        make(Bad(), uid="op").send(row("ann"))

    error: Any = caught.value
    assert (error.operator, error.variable, error.key) == ("op", "spent", "ann")
    assert declared.type.ddl in error.expected


@pytest.mark.parametrize("value", ["x", 1 << 63, [1]])
def test_element_that_cannot_be_stored_names_its_variable(value: Any) -> None:
    class Bad(Process):
        items = List("long")
        seen = Map("long", "long")

        def on_event(self, record: Any, ctx: Any) -> None:
            if record.v == 1:
                self.items.append(value)
            elif record.v == 2:
                self.seen[1] = value
            else:
                self.seen[value] = 1

    for v, name in ((1, "items"), (2, "seen"), (3, "seen")):
        with pytest.raises(StateTypeError) as caught:
            make(Bad()).send(row("ann", v))
        found: Any = caught.value
        assert (found.variable, found.key) == (name, "ann")


def test_failed_epoch_leaves_no_trace() -> None:
    class Sometimes(Sum):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield from super().on_event(record, ctx)
            if record.v == 0:
                raise ValueError("poison")

    h = make(Sometimes())
    h.send(row("a", 1))
    before = h.snapshot()

    with pytest.raises(UserCodeError):
        h.send(row("a", 2), row("b", 3), row("c", 0))

    assert h.snapshot().changes == before.changes
    assert (h.output, h.state("total", "a")) == ([("a", 1.0)], 1.0)


# Keys


@pytest.mark.parametrize(
    "key", [None, "", "ünïcødé 🎉", "x" * 511, "x" * 512, "y" * 100_000, "a\x00b"]
)
def test_any_text_is_a_key(key: str | None) -> None:
    class Both(Sum):
        recent = List("long")
        seen = Map("string", "long")

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            assert ctx.key == key
            self.recent.append(record.v)
            self.seen[key or "none"] = record.v
            ctx.set_timer(T)
            yield from super().on_event(record, ctx)

        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            yield ctx.key, -1.0

    h = make(Both())
    h.send(row(key, 1))
    h = h.restart(h.snapshot())
    h.send(row(key, 2))
    h.advance_watermark(T)

    assert h.output == [(key, 3.0), (key, -1.0)]
    assert h.state("recent", key) == [1, 2]
    assert h.state("seen", key) == {key or "none": 2}
    assert h.keys() == [key]


def test_composite_keys_are_tuples() -> None:
    class Pair(Process):
        output = "a string, b long, n long"
        n = Value("long", default=0)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            self.n += 1
            yield *ctx.key, self.n

    h = harness(Pair(), key=["a", "b"], input="a string, b long, c long")
    h.send(("x", 1, 0), ("x", None, 0), (None, 1, 0), ("x", 1, 0))
    h.send((None, 1, 0))

    assert sorted(h.output, key=repr) == sorted(
        [("x", 1, 1), ("x", None, 1), (None, 1, 1), ("x", 1, 2), (None, 1, 2)],
        key=repr,
    )
    assert h.state("n", ("x", 1)) == 2
    assert h.state("n", (None, 1)) == 2


def test_float_keys_that_are_equal_are_one_key() -> None:
    class Count(Process):
        output = "n long"
        n = Value("long", default=0)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            self.n += 1
            yield (self.n,)

    nan = float("nan")
    h = harness(Count(), key="f", input="f double")
    h.send((0.0,), (-0.0,), (nan,), (-nan,))
    h.send((-0.0,), (nan,))

    assert sorted(h.output) == [(1,), (1,), (2,), (2,), (3,), (3,)]


def test_values_of_16_megabytes_are_stored() -> None:
    class Large(Process):
        blob = Value("binary")
        blobs = Map("long", "binary")

        def on_event(self, record: Any, ctx: Any) -> None:
            self.blob = bytes([record.v]) * (16 << 20)
            self.blobs[record.v] = self.blob

    h = make(Large())
    h.send(row("a", 1))
    h.send(row("a", 2))

    assert h.state("blob", "a") == b"\x02" * (16 << 20)
    assert sorted(h.state("blobs", "a")) == [1, 2]


# Dead letters


class Fragile(Process):
    """Does everything there is, and then raises for v == 0."""

    output = "k string, total double"
    total = Value("double", default=0.0)
    tags = Value("array<long>", default=[])
    grouped = Value("long", default=0, scope="group")
    recent = List("array<long>")
    seen = Map("long", "array<long>")
    fresh = Value("long", ttl="1 day")
    best = Reducing("long", max)
    side = SideOutput("k string")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        self.total += record.v + ctx.random.random()
        self.tags.append(record.v)
        self.grouped += 1
        self.recent.append([record.v])
        for element in self.recent:
            element.append(0)
        self.seen.setdefault(record.v % 3, []).append(record.v)
        self.fresh = record.v
        self.best.add(record.v + 100)
        ctx.set_timer(T + seconds(record.v))
        ctx.delete_timer(T + seconds(2))
        ctx.emit(self.side, (ctx.key,))
        yield ctx.key, self.total
        self.poison(record)

    def poison(self, record: Any) -> None:
        if record.v == 0:
            raise ValueError("poison")

    def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
        if at == T + timedelta(seconds=5):
            self.total = 1e9
            raise ValueError("timer")
        yield ctx.key, -1.0


GOOD = [row("a", 1), row("b", 2), row("a", 3), row("c", 4), row("a", 7)]
STATES = ("total", "tags", "grouped", "recent", "seen", "fresh", "best")


def outcome(h: Harness) -> Any:
    states = {
        (n, k): h.state(n, k) for n in STATES for k in ("a", "b", "c", "d", "poison")
    }
    timers = {k: h.timers(k) for k in "abcd"}
    return h.output, h.side("side"), states, timers


def test_dead_letters_leave_state_as_if_they_had_never_come() -> None:
    clean, dirty = (make(Fragile(), on_error="dead_letter") for _ in range(2))
    clean.send(*GOOD)
    clean.send(*GOOD)
    for _ in range(2):
        dirty.send(
            row("a", 0),
            *GOOD[:2],
            row("a", 0),
            *GOOD[2:],
            row("d", 0),
            row("b", 0),
        )

    assert outcome(dirty) == outcome(clean)
    letters = dirty.dead_letters
    assert len(letters) == 8
    assert {d["key"] for d in letters} == {"'a'", "'b'", "'d'"}
    assert letters[0]["operator"] == "process"
    assert "ValueError: poison" in letters[0]["error"]
    assert "raise ValueError" in letters[0]["line"]
    assert "v=0" in letters[0]["record"]


def test_a_record_after_a_dead_letter_sees_what_another_epoch_would_see() -> None:
    class Forgetful(Process):
        output = "n long, share double"
        n = Value("long", default=7)
        share = Value("float", default=0)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            if record.v == 0:
                raise ValueError("poison")
            yield self.n + 1, self.share + 1.0
            self.n, self.share = None, 0.1

    h = make(Forgetful(), on_error="dead_letter")
    h.send(row("a", 0), row("a", 1), row("a", 2))

    assert h.output == [(8, 1.0), (8, 1.1000000014901161)]
    assert len(h.dead_letters) == 1


@pytest.mark.parametrize("how", ["value", "list in place", "row", "row type", "side"])
def test_dead_letters_include_what_cannot_be_stored_or_given(how: str) -> None:
    class Wrong(Fragile):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield from super().on_event(record, ctx)
            if record.v == 99:
                yield from self.go_wrong(ctx)

        def go_wrong(self, ctx: Any) -> Iterator[Any]:
            match how:
                case "value":
                    self.total = "text"
                case "list in place":
                    self.recent[0].append("text")
                case "row":
                    yield (1, 2, 3)
                case "row type":
                    yield "k", "no number"
                case _:
                    ctx.emit(self.side, (object(),))

    clean, dirty = (make(Wrong(), on_error="dead_letter") for _ in range(2))
    clean.send(*GOOD)
    dirty.send(row("a", 99), *GOOD[:3], row("b", 99), *GOOD[3:])

    assert outcome(dirty) == outcome(clean)
    assert len(dirty.dead_letters) == 2


def test_poison_timer_is_dropped_and_told() -> None:
    h = make(Fragile(), on_error="dead_letter")
    h.send(row("a", 5), row("a", 6))
    total = h.state("total", "a")
    h.clear_output()

    h.advance_watermark(T + minutes(1))

    assert h.output == [("a", -1.0)]
    assert h.state("total", "a") == total
    assert h.timers("a") == []
    assert "timer at 2024-01-01T00:00:05Z" in h.dead_letters[0]["record"]


def test_timers_that_a_poison_timer_has_set_and_removed_are_taken_back() -> None:
    class Meddler(Alarm):
        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            if at == T + seconds(5):
                ctx.set_timer(T + seconds(6))
                ctx.delete_timer(T + seconds(7))
                raise ValueError("poison")
            yield from super().on_timer(at, ctx)

    h = make(Meddler(), on_error="dead_letter")
    h.send(row("a", 5), row("a", 7))
    h.clear_output()

    h.advance_watermark(T + minutes(1))

    assert told(h) == ["timer 7"]
    assert h.timers("a") == []
    assert len(h.dead_letters) == 1


def test_without_dead_letters_poison_fails_the_epoch() -> None:
    with pytest.raises(UserCodeError, match="poison"):
        make(Fragile()).send(row("a", 0))


# Determinism


class Chance(Process):
    output = "k string, x double, now timestamp"

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, ctx.random.random(), ctx.now


def test_random_and_now_are_the_same_on_every_run() -> None:
    rows = [row("a"), row("b"), row("a")]

    first, second = make(Chance(), seed=1), make(Chance(), seed=1)

    assert first.send(*rows) == second.send(*reversed(rows))
    assert len({x for _, x, _ in first.output}) == 3
    assert make(Chance(), seed=2).send(*rows) != first.output
    assert {now for _, _, now in first.output} == {T}


def test_random_differs_between_epochs() -> None:
    h = make(Chance())

    assert h.send(row("a")) != h.send(row("a"))
