from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import schema_of
from riverlock.operators.by_key.deduplicate import Deduplicate
from riverlock.program.time_basis import Timing
from riverlock.testing import run_local
from riverlock.testing.harness import Harness, harness

T = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = schema_of("id string, n long, at timestamp")
KEYS = schema_of("id string")


def at(minutes: int) -> datetime:
    return T + timedelta(minutes=minutes)


def make(*, has_event_time: bool = True) -> Harness:
    process = Deduplicate(
        timedelta(minutes=10), Timing(has_event_time=has_event_time)
    ).bound(KEYS, COLUMNS)
    time = "at" if has_event_time else None
    return harness(process, key="id", input=COLUMNS, event_time=time)


def numbers(rows: list[Any]) -> list[int]:
    return [n for _, n, _ in rows]


def test_deduplicate_keeps_the_first_record_of_a_key() -> None:
    h = make()

    h.send(("a", 1, at(0)), ("b", 2, at(0)), ("a", 3, at(9)))
    h.send(("a", 4, at(5)), ("b", 5, at(1)))

    assert h.output == [("a", 1, at(0)), ("b", 2, at(0))]


def test_deduplicate_keeps_a_record_as_far_away_as_within() -> None:
    h = make()

    h.send(("a", 1, at(0)), ("a", 2, at(10)), ("a", 3, at(19)), ("a", 4, at(20)))

    assert numbers(h.output) == [1, 2, 4]


def test_deduplicate_measures_from_the_kept_record_not_from_duplicates() -> None:
    h = make()

    h.send(("a", 1, at(0)), ("a", 2, at(6)), ("a", 3, at(12)))

    assert numbers(h.output) == [1, 3]


def test_deduplicate_compares_with_all_kept_records_that_could_be_close() -> None:
    h = make()

    h.send(("a", 1, at(0)), ("a", 2, at(15)))
    h.send(("a", 3, at(5)), ("a", 4, at(8)), ("a", 5, at(-10)))

    assert numbers(h.output) == [1, 2, 5]


def test_deduplicate_forgets_a_key_when_the_watermark_is_past_it() -> None:
    h = make()
    h.send(("a", 1, at(0)), ("a", 2, at(12)))

    h.advance_watermark(at(10))

    assert h.state("kept", key="a") == [at(12)]
    assert h.timers("a") == [at(22)]
    h.advance_watermark(at(22))
    assert h.keys() == []
    assert numbers(h.send(("a", 3, at(23)))) == [3]


def test_deduplicate_calls_records_at_the_watermark_late() -> None:
    h = make()
    h.send(("a", 1, at(0)))
    h.advance_watermark(at(9))

    # A duplicate of what is remembered is one, late or not.
    assert h.send(("a", 2, at(9)), ("b", 3, at(9))) == []
    assert numbers(h.side("late")) == [3]


def test_deduplicate_sends_late_records_that_it_cannot_judge_to_a_side_output() -> None:
    h = make()
    h.send(("a", 1, at(0)), ("b", 2, at(8)))
    h.advance_watermark(at(10))

    h.send(("a", 3, at(1)), ("b", 4, at(7)), ("c", 5, at(2)))

    assert numbers(h.output) == [1, 2]
    assert numbers(h.side("late")) == [3, 5]


def test_deduplicate_goes_by_the_clock_without_event_time() -> None:
    h = make(has_event_time=False)

    h.send(("a", 1, at(0)), ("a", 2, at(500)))
    h.advance_clock("9 minutes")
    h.send(("a", 3, at(0)))
    h.advance_clock("1 minute")
    assert h.keys() == []
    h.send(("a", 4, at(0)))

    assert numbers(h.output) == [1, 4]
    assert h.side("late") == []


def test_deduplicate_survives_a_restart() -> None:
    h = make()
    h.send(("a", 1, at(0)))

    again = h.restart(h.snapshot())

    assert again.send(("a", 2, at(5))) == []


def test_deduplicate_cannot_judge_records_without_event_time() -> None:
    h = make()

    h.send(("a", 1, None), ("a", 2, at(0)))

    assert numbers(h.output) == [2]
    assert numbers(h.side("late")) == [1]
    assert h.late_rows == 1


def test_deduplicate_runs_in_one_thread_with_its_side_output() -> None:
    flow = rl.Flow("orders")
    source = rl.sources.files("in", format="json", schema=COLUMNS.ddl)
    orders = flow.read(source, uid="orders").event_time("at", delay="5 minutes")
    kept = orders.key_by("id").deduplicate("10 minutes", uid="once")
    kept.filter(lambda o: o.n > 1).write(rl.sinks.memory(), uid="kept")
    kept.side("late").write(rl.sinks.memory(), uid="late")

    rows = [("a", 1, at(0)), ("b", 2, at(30)), ("a", 3, at(3)), ("c", 4, at(25))]
    run = run_local(flow, rows, epoch_rows=1)

    assert numbers(run.rows("kept")) == [2, 4]
    assert numbers(run.rows("late")) == [3]


@pytest.mark.parametrize("within", ["0 seconds", "soon", 5, None])
def test_deduplicate_refuses_what_is_no_duration(within: Any) -> None:
    flow = rl.Flow("orders")
    source = rl.sources.files("in", format="json", schema=COLUMNS.ddl)

    with pytest.raises(InvalidFlowError, match="within of deduplicate") as caught:
        flow.read(source).key_by("id").deduplicate(within)

    assert repr(within) in str(caught.value)
