"""What an epoch takes, and what time it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from riverlock.coordinator.epoch import PlannedInputs
from riverlock.coordinator.watermarks import operator_watermark
from riverlock.core.clock import ManualClock
from riverlock.core.errors import SourceError
from riverlock.core.times import END_US
from riverlock.driver.intake.admission import Admission
from riverlock.driver.intake.input_watermarks import moved_along
from riverlock.driver.intake.planner import Planner
from riverlock.program.graph import EventTime, Read
from riverlock.snapshot.format.records import InputRange, Manifest, Watermark
from riverlock.sources import generator

READ = Read(uid="in", source=generator({"n": "id"}, rows=1))


def declared(uid: str, idle_us: int | None) -> EventTime:
    return EventTime(uid=uid, input=READ, column="at", delay_us=0, idle_us=idle_us)


class Rows:
    """A source of so many rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    gives_positions = False
    can_read_ahead = True
    is_repeatable = True

    def initial(self) -> Any:
        return 0

    def latest(self, start: Any) -> Any:
        return self.rows

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        return min(latest, start + max_rows)

    def has_ended(self, start: Any, latest: Any) -> bool:
        return False

    def rows_between(self, start: Any, end: Any) -> int:
        return int(end - start)

    def read(self, start: Any, end: Any) -> Any:
        raise AssertionError

    def observed(self, rows: int) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


def planner(**sources: int) -> Planner:
    return Planner(
        readers={uid: Rows(rows) for uid, rows in sources.items()},
        clock=ManualClock(100),
        admission=Admission(target_us=None, max_rows=100),
        operators={},
        sources={},
        stops_at_end=True,
    )


def test_sources_that_have_rows_share_the_limit() -> None:
    plan = planner(a=500, b=0, c=500).plan(None)

    assert plan is not None
    assert {u: r.end for u, r in plan.inputs.items()} == {"a": 50, "b": 0, "c": 50}


def test_nothing_to_read_and_no_timer_is_no_plan() -> None:
    assert planner(a=0, b=0).plan(None) is None


def test_the_watermark_is_the_minimum_and_unknown_while_an_input_has_none() -> None:
    marks = {"a": Watermark(watermark_us=5), "b": Watermark(watermark_us=9)}

    assert operator_watermark(["a", "b"], marks) == 5
    assert operator_watermark(["a", "b", "c"], marks) is None
    assert operator_watermark([], marks) is None


def test_an_input_that_has_ended_does_not_move_idle_ones_along() -> None:
    both = (declared("done", None), declared("live", 5))
    marks = {"done": Watermark(watermark_us=END_US), "live": Watermark(watermark_us=7)}

    moved = moved_along([both], marks, now_us=100, since_us=0)

    assert operator_watermark(["done", "live"], moved) == 7


def test_rows_of_an_input_that_had_ended_are_refused() -> None:
    chosen = planner(a=500)
    chosen.sources = {"t": ("a",)}
    ended = {"t": Watermark(watermark_us=END_US)}
    first = chosen.plan(None)
    assert first is not None
    parent = msgspec.structs.replace(manifest_after(first), watermarks=ended)

    with pytest.raises(SourceError, match="it had ended"):
        chosen.plan(parent)


def test_an_idle_input_is_moved_along_and_does_not_move_time_back() -> None:
    both = (declared("a", 10), declared("b", 10))
    marks = {
        "a": Watermark(watermark_us=5, active_us=0),
        "b": Watermark(watermark_us=90, active_us=95),
    }

    moved = moved_along([both], marks, now_us=100, since_us=0)

    assert moved["a"].watermark_us == 90
    # It wakes up: its own times are older, its watermark stays.
    awake = {**moved, "a": Watermark(watermark_us=90, active_us=100)}
    later = moved_along([both], awake, now_us=101, since_us=0)
    assert operator_watermark(["a", "b"], later) == 90


def test_an_input_that_never_had_a_row_becomes_idle_too() -> None:
    both = (declared("a", 10), declared("b", None))
    marks = {"b": Watermark(watermark_us=90, active_us=95)}

    early = moved_along([both], marks, now_us=100, since_us=95)
    late = moved_along([both], marks, now_us=106, since_us=95)

    assert operator_watermark(["a", "b"], early) is None
    assert operator_watermark(["a", "b"], late) == 90


def test_time_stands_still_if_all_inputs_are_idle() -> None:
    both = (declared("a", 10), declared("b", 10))
    marks = {
        "a": Watermark(watermark_us=5, active_us=0),
        "b": Watermark(watermark_us=90, active_us=0),
    }

    assert moved_along([both], marks, now_us=100, since_us=0) == marks


def test_the_row_limit_adapts_to_the_target_beyond_the_fixed_cost() -> None:
    admission = Admission(target_us=1_000_000)
    for _ in range(30):
        rows = admission.rows
        admission.learn(rows, 400_000 + 2 * rows)  # 0.4 s fixed, 2 µs a row

    assert 250_000 < admission.rows < 450_000


def test_a_fixed_number_of_rows_does_not_adapt() -> None:
    admission = Admission(target_us=None, max_rows=7)
    for _ in range(5):
        admission.learn(7, 10_000_000)

    assert admission.rows == 7


def manifest_after(plan: PlannedInputs) -> Manifest:
    return Manifest(
        format=1,
        flow="f",
        region="main",
        epoch=0,
        parent=None,
        run=1,
        started_us=plan.started_us,
        decided_us=plan.started_us,
        now_us=plan.now_us,
        seed=plan.seed,
        parallelism=1,
        key_groups=1,
        code="",
        inputs=dict(plan.inputs),
    )


def ends(inputs: Mapping[str, InputRange] | None) -> dict[str, Any] | None:
    return None if inputs is None else {u: r.end for u, r in inputs.items()}


def test_what_is_read_ahead_is_what_the_next_plan_takes() -> None:
    plans = planner(a=500)
    first = plans.plan(None)
    assert first is not None

    ahead = plans.ahead(first)
    assert ends(ahead) == {"a": 200}
    plans.admission.max_rows = 30  # the next plan is bound by what was fixed
    second = plans.plan(manifest_after(first))

    assert second is not None
    assert second.inputs == ahead
    assert plans.lag_rows == {"a": 300}


def test_only_a_backlog_is_read_ahead() -> None:
    plans = planner(a=150)
    plans.stops_at_end = False
    first = plans.plan(None)
    assert first is not None

    assert plans.ahead(first) is None
    plans.stops_at_end = True  # nothing more will come: waiting is in vain
    assert ends(plans.ahead(first)) == {"a": 150}


def test_a_plan_from_elsewhere_does_not_take_what_was_fixed() -> None:
    plans = planner(a=500)
    first = plans.plan(None)
    assert first is not None
    assert ends(plans.ahead(first)) == {"a": 200}

    again = plans.plan(None)

    assert again is not None
    assert ends(again.inputs) == {"a": 100}
