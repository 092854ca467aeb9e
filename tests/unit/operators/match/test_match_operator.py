from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError, UserCodeError
from riverlock.core.types import schema_of
from riverlock.operators.base import BuiltIn
from riverlock.operators.match.match_operator import Match
from riverlock.program.pattern import Pattern
from riverlock.program.time_basis import Timing
from riverlock.testing import run_local
from riverlock.testing.harness import Harness, harness

T = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "user string, kind string, at timestamp"


def at(seconds: int) -> datetime:
    return T + timedelta(seconds=seconds)


def is_kind(wanted: str) -> Any:
    return lambda event: event.kind == wanted


def cart_then_buy() -> Pattern:
    begun = rl.pattern("cart", is_kind("cart")).then("buy", is_kind("buy"))
    return begun.within("60 seconds")


def abandoned() -> Pattern:
    begun = rl.pattern("cart", is_kind("cart")).without("buy", is_kind("buy"))
    return begun.within("60 seconds")


def times(events: dict[str, Any]) -> Any:
    return events["cart"].user, [e.at for e in events.values()]


def bound(pattern: Pattern, *, has_event_time: bool = True) -> BuiltIn:
    timing = Timing(has_event_time=has_event_time)
    output = schema_of("user string, times array<timestamp>")
    process = Match(pattern, output, times, timing)
    return process.bound(schema_of("user string"), schema_of(COLUMNS))


def make(pattern: Pattern, *, has_event_time: bool = True, **options: Any) -> Harness:
    process = bound(pattern, has_event_time=has_event_time)
    time = "at" if has_event_time else None
    return harness(process, key="user", input=COLUMNS, event_time=time, **options)


def test_match_looks_at_events_once_the_watermark_reaches_them() -> None:
    h = make(cart_then_buy())
    h.send(("ann", "buy", at(5)), ("ann", "cart", at(0)))

    h.advance_watermark(at(5) - timedelta(microseconds=1))
    assert h.output == []  # another one before this instant may come

    h.advance_watermark(at(5))
    assert h.output == [("ann", [at(0), at(5)])]


def test_match_keeps_the_order_of_arrival_within_an_instant() -> None:
    h = make(cart_then_buy())
    h.send(("ann", "cart", at(0)), ("bob", "buy", at(0)))
    h.send(("ann", "buy", at(0)), ("bob", "cart", at(0)))

    h.advance_watermark(at(1))

    assert h.output == [("ann", [at(0), at(0)])]


def test_match_calls_events_at_the_watermark_late() -> None:
    h = make(cart_then_buy())
    h.send(("ann", "cart", at(10)))
    h.advance_watermark(at(10))

    h.send(("ann", "buy", at(11)), ("ann", "buy", at(10)))
    h.advance_watermark(at(11))

    assert h.output == [("ann", [at(10), at(11)])]
    assert h.side("late") == [("ann", "buy", at(10))]


def test_match_leaves_nothing_behind() -> None:
    h = make(cart_then_buy())
    h.send(("ann", "cart", at(0)), ("bob", "cart", at(1)), ("bob", "buy", at(2)))
    h.send(("cid", "buy", at(3)))

    h.advance_watermark(at(10))
    assert len(h.state("partials", key="ann")) == 1
    assert h.state("partials", key="bob") is None
    assert h.state("waiting", key="cid") == {}

    h.advance_watermark(at(61))
    assert h.keys() == []
    assert h.output == [("bob", [at(1), at(2)])]


def test_match_gives_what_did_not_happen_when_the_time_is_over() -> None:
    h = make(abandoned())
    h.send(("ann", "cart", at(0)), ("bob", "cart", at(0)), ("bob", "buy", at(59)))
    h.send(("ann", "buy", at(60)))

    h.advance_watermark(at(59))
    assert h.output == []

    h.advance_watermark(at(60))
    assert h.output == [("ann", [at(0)])]
    h.advance_watermark(at(500))
    assert h.output == [("ann", [at(0)])]
    assert h.keys() == []


def test_match_catches_up_over_many_deadlines_in_order() -> None:
    h = make(abandoned())
    h.send(*(("ann", "cart", at(n * 100)) for n in range(5)))
    h.send(("ann", "buy", at(230)))

    h.advance_watermark(at(10_000))

    assert [t for _, (t,) in h.output] == [at(0), at(100), at(300), at(400)]
    assert h.keys() == []


def test_match_looks_at_rows_of_an_operator_before_it_in_the_same_epoch() -> None:
    h = make(cart_then_buy(), follows_keyed=True)
    h.send(("ann", "cart", at(0)))
    h.watermark = at(50)

    h.send(("ann", "buy", at(40)))

    assert h.output == [("ann", [at(0), at(40)])]
    assert h.side("late") == []
    h.advance_watermark(at(60))
    h.send(("ann", "buy", at(55)))
    assert h.side("late") == [("ann", "buy", at(55))]


def test_match_goes_by_the_clock_without_event_time() -> None:
    h = make(abandoned(), has_event_time=False)
    h.send(("ann", "cart", at(0)), ("bob", "cart", at(0)))
    h.advance_clock("59 seconds")
    h.send(("bob", "buy", at(0)))
    assert h.output == []

    h.advance_clock("1 second")

    assert h.output == [("ann", [at(0)])]
    assert h.keys() == []


def test_match_survives_a_restart() -> None:
    h = make(cart_then_buy())
    h.send(("ann", "cart", at(0)), ("ann", "buy", at(20)))
    h.advance_watermark(at(10))

    again = h.restart(h.snapshot())
    again.advance_watermark(at(30))

    assert again.output == [("ann", [at(0), at(20)])]


def test_match_forgets_what_a_changed_pattern_has_no_step_for() -> None:
    h = make(cart_then_buy())
    h.send(("ann", "cart", at(0)))
    h.advance_watermark(at(10))
    other = rl.pattern("look", is_kind("look")).within("1 minute")

    again = h.restart(h.snapshot(), bound(other))
    again.send(("ann", "buy", at(20)))
    again.advance_watermark(at(500))

    assert again.output == []
    assert again.keys() == []


def test_match_gives_stored_events_as_they_came() -> None:
    row = (
        "ann",
        T,
        datetime(2026, 1, 1),  # noqa: DTZ001 - a timestamp without zone
        date(2026, 1, 1),
        Decimal("1.50"),
        None,
        {"as_dict": [1, 2]},
    )
    columns = schema_of(
        "user string, at timestamp, local timestamp_ntz, day date,"
        " price decimal(10,2), gone timestamp, `odd name` struct<as_dict:array<int>>"
    )
    seen: list[Any] = []

    def see(event: Any, matched: dict[str, Any]) -> bool:
        seen.append((event, *matched.values()))
        return bool(matched)

    pattern = rl.pattern("a", lambda e: True).then("b", see).within("1 minute")
    process = Match(
        pattern, schema_of("n int"), len, Timing(has_event_time=True)
    ).bound(schema_of("user string"), columns)
    h = harness(process, key="user", input=columns, event_time="at")
    h.send(row)
    h.advance_watermark(at(0))
    h.send(("ann", at(1), *row[2:]))
    h.advance_watermark(at(2))

    assert h.output == [(2,)]
    ((event, first),) = seen
    assert tuple(first)[:6] == row[:6]
    assert first["odd name"].as_dict == [1, 2]
    assert event.at == at(1)


def test_match_names_the_line_of_a_predicate_that_raises() -> None:
    pattern = rl.pattern("a", lambda e: 1 / 0).within("1 minute")
    h = make(pattern)
    h.send(("ann", "cart", at(0)))

    with pytest.raises(UserCodeError, match="ZeroDivisionError") as caught:
        h.advance_watermark(at(1))

    assert "test_match_operator.py" in caught.value.line


def test_match_goes_on_after_a_dead_letter() -> None:
    def fits(event: Any) -> bool:
        if event.kind == "bad":
            raise ValueError(event.kind)
        return bool(event.kind == "buy")

    pattern = rl.pattern("cart", is_kind("cart")).then("buy", fits).within("1 minute")
    h = make(pattern, on_error="dead_letter")
    h.send(("ann", "cart", at(0)), ("ann", "bad", at(1)), ("ann", "buy", at(2)))

    h.advance_watermark(at(10))

    assert h.output == [("ann", [at(0), at(2)])]
    (letter,) = h.dead_letters
    assert "ValueError: bad" in letter["error"]
    h.advance_watermark(at(100))
    assert h.keys() == []


def test_match_whose_select_raises_at_the_deadline_is_given_up_once() -> None:
    h = make(abandoned(), on_error="dead_letter")
    h.send(("ann", "cart", at(0)), ("ann", "cart", at(100)))
    process: Any = h._program.process
    process._select = lambda events: times(events) if events["cart"].at > T else [][1]

    h.advance_watermark(at(500))

    assert h.output == [("ann", [at(100)])]
    assert len(h.dead_letters) == 1
    assert h.keys() == []


def test_match_does_not_look_at_records_without_event_time() -> None:
    h = make(cart_then_buy())

    h.send(("ann", "cart", None))

    assert h.side("late") == [("ann", "cart", None)]
    assert h.late_rows == 1
    assert h.keys() == []


def test_match_runs_in_one_thread_with_its_side_output() -> None:
    flow = rl.Flow("shop")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    clicks = flow.read(source, uid="clicks").event_time("at", delay="10 seconds")
    found = clicks.key_by("user").match(
        cart_then_buy(),
        output="user string, times array<timestamp>",
        select=times,
        uid="bought",
    )
    found.write(rl.sinks.memory(), uid="found")
    found.late.write(rl.sinks.memory(), uid="late")

    rows = [
        ("ann", "buy", at(5)),
        ("ann", "cart", at(0)),
        ("bob", "look", at(100)),
        ("ann", "buy", at(1)),
    ]
    run = run_local(flow, rows, epoch_rows=1)

    assert run.rows("found") == [("ann", [at(0), at(5)])]
    assert run.rows("late") == [("ann", "buy", at(1))]


@pytest.mark.parametrize(
    ("pattern", "select", "what"),
    [
        (rl.pattern("a", is_kind("a")), times, "a bound on its time"),
        ("a then b", times, r"needs rl\.pattern"),
        (cart_then_buy(), "times", "of the events of a match"),
    ],
)
def test_match_refuses_what_it_cannot_use(pattern: Any, select: Any, what: str) -> None:
    flow = rl.Flow("shop")
    source = rl.sources.files("in", format="json", schema=COLUMNS)

    with pytest.raises(InvalidFlowError, match=what):
        flow.read(source).key_by("user").match(pattern, "n int", select)


def test_sides_of_built_in_operators_are_checked() -> None:
    flow = rl.Flow("shop")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    keyed = flow.read(source).key_by("user")

    with pytest.raises(InvalidFlowError, match=r"side outputs \(late\)"):
        keyed.match(cart_then_buy(), "n int", times).side("lost")
    with pytest.raises(InvalidFlowError, match=r"side outputs \(none\)"):
        keyed.count().side("late")
