"""Watermarks of inputs: what moves them, partitions, idleness."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riverlock as rl
from riverlock.coordinator.watermarks import advanced, slowest
from riverlock.core.clock import ManualClock
from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import MARK, PART, TIME
from riverlock.driver.intake.input_watermarks import declared_marks
from riverlock.program.graph import EventTime, Read
from riverlock.snapshot.format.records import PartitionTime, Watermark
from riverlock.sources import files
from riverlock.testing import run_local
from riverlock.testing.local import LocalRun
from riverlock.worker.event_times import (
    MAX_PARTITIONS,
    DeclaredTimes,
    partition_times,
)

T = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "k string, shard string, at timestamp, done timestamp"
READ = Read(uid="in", source=files("in", format="json", schema=COLUMNS))


def at(seconds: int) -> datetime:
    return T + timedelta(seconds=seconds)


def declared(idle_us: int | None = None, per: str | None = "shard") -> EventTime:
    return EventTime(
        uid="t", input=READ, column="at", delay_us=2, idle_us=idle_us, per=per
    )


class Seen(rl.Process):
    """Says what the watermark was when a record came, and when its timer fired."""

    output = "k string, at timestamp, watermark timestamp"

    def on_event(self, record: Any, ctx: Any) -> Any:
        ctx.set_timer(ctx.time)
        yield record.k, None, ctx.watermark

    def on_timer(self, at: Any, ctx: Any) -> Any:
        yield ctx.key, at, ctx.watermark


def seen(**declaration: Any) -> rl.Flow:
    flow = rl.Flow("seen")
    rows = flow.read(files("in", format="json", schema=COLUMNS), uid="in")
    rows = rows.event_time("at", **declaration)
    rows.key_by("k").process(Seen(), uid="seen").write(rl.sinks.memory(), uid="out")
    return flow


def test_a_partition_without_times_does_not_hold_time_back() -> None:
    # Broken rows have neither a time nor a partition; those of "b" have no mark.
    times, marks = ([5, None, 6], [5, None, None])
    columns = {TIME: times, MARK: marks, PART: ["a", "", "b"]}

    found = partition_times(pa.table(columns), DeclaredTimes(names=("t",), column=MARK))

    assert found == {"t": {"a": 5, "b": None}}


def test_the_watermark_is_that_of_the_slowest_partition() -> None:
    mark = advanced(
        Watermark(),
        Watermark(),
        [50],
        [{"a": 50, "b": 10}, {"b": 12}],
        delay_us=2,
        now_us=7,
    )

    assert mark.watermark_us == 12 - 2 - 1
    assert mark.partitions["a"] == PartitionTime(max_time_us=50, active_us=7)
    # One that is new and behind all others does not turn time back.
    later = advanced(mark, mark, [3], [{"c": 3}], delay_us=2, now_us=8)
    assert later.watermark_us == 9
    assert set(later.partitions) == {"a", "b", "c"}


def test_a_partition_that_says_nothing_of_time_holds_it_back() -> None:
    assert slowest([PartitionTime(max_time_us=5), PartitionTime()], 0) is None
    assert slowest([], 0) is None


def test_idle_partitions_do_not_count_while_others_are_awake() -> None:
    marks = {
        "t": Watermark(
            watermark_us=3,
            partitions={
                "a": PartitionTime(max_time_us=90, active_us=95),
                "b": PartitionTime(max_time_us=6, active_us=10),
            },
        )
    }

    early = declared_marks([declared(20)], marks, now_us=30)["t"]
    late = declared_marks([declared(20)], marks, now_us=100)["t"]
    never = declared_marks([declared(None)], marks, now_us=100)["t"]
    still = declared_marks([declared(20)], {"t": late}, now_us=1_000)["t"]

    assert (early.watermark_us, never.watermark_us) == (3, 3)
    assert late.watermark_us == 90 - 2 - 1
    assert late.idle_after_us == 20
    assert set(late.partitions) == {"a", "b"}
    assert still.watermark_us == late.watermark_us


def test_partitions_are_forgotten_only_if_they_are_many_and_idle() -> None:
    many = {str(n): PartitionTime(max_time_us=n, active_us=0) for n in range(2_000)}
    mark = Watermark(partitions={**many, "new": PartitionTime(active_us=90)})

    kept = declared_marks([declared(20)], {"t": mark}, now_us=100)["t"]

    assert list(kept.partitions) == ["new"]
    with pytest.raises(InvalidFlowError, match=r"needs a column with at most 1,000"):
        declared_marks([declared(None)], {"t": mark}, now_us=100)
    assert (
        declared_marks([declared(per=None)], {"t": mark}, now_us=100)["t"].partitions
        == {}
    )
    assert MAX_PARTITIONS == 1_000


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=20),
    st.integers(1, 5),
)
def test_no_partition_makes_another_one_late(
    steps: list[tuple[str, int]], size: int
) -> None:
    clocks = {"a": 0, "b": 500}
    rows: list[Any] = []
    for shard, step in [("a", 0), ("b", 0), *steps]:  # both are known from the start
        clocks[shard] += step
        rows.append((shard, shard, at(clocks[shard]), None))
    flow = seen(per="shard")

    run = LocalRun(flow, ManualClock())
    run.epoch({"in": rows[:2]})
    for begin in range(2, len(rows), size):
        run.epoch({"in": rows[begin : begin + size]})
    run.epoch({})

    for k, time, mark in run.rows():
        if time is None and mark is not None:
            assert mark < min(at(clocks["a"]), at(clocks["b"]))
        assert time is None or time <= mark, k
    # Timers are due up to the slower one, not at its newest instant.
    limit = min(clocks.values())
    due = {r[2] for r in rows if r[2] < at(limit)}
    assert {t for _, t, _ in run.rows() if t is not None} == due


def test_markers_move_the_watermark_and_other_rows_do_not() -> None:
    flow = seen(watermark="done", delay="5 seconds")
    rows = [
        ("a", "", at(10), None),
        ("a", "", at(99), None),
        ("b", "", at(3), at(20)),
        ("a", "", at(14), None),
    ]

    run = run_local(flow, rows, epoch_rows=1)

    moment = timedelta(microseconds=1)
    marks = [mark for _, time, mark in run.rows() if time is None]
    assert marks == [None, None, None, at(15) - moment]
    assert {t for _, t, _ in run.rows() if t} == {at(10), at(3), at(14)}


def test_a_marker_that_is_no_column_needs_spark() -> None:
    with pytest.raises(
        InvalidFlowError, match=r"watermark of event_time .* on the local"
    ):
        run_local(seen(watermark="max(at)"), [("a", "", at(1), None)])


def test_per_must_be_a_column() -> None:
    with pytest.raises(InvalidFlowError, match="per of event_time"):
        seen(per="shad")


def test_an_idle_input_of_two_is_moved_along_without_spark() -> None:
    flow, clock = rl.Flow("idle"), ManualClock()
    one, two = (
        flow.read(files(u, format="json", schema=COLUMNS), uid=u).event_time(
            "at", idle_after="1 minute", uid=f"time-{u}"
        )
        for u in ("one", "two")
    )
    both = one.union(two).key_by("k").process(Seen(), uid="seen")
    both.write(rl.sinks.memory(), uid="out")
    run = LocalRun(flow, clock)

    def fired() -> set[datetime]:
        return {t for _, t, _ in run.rows("out") if t}

    run.epoch({"one": [("a", "", at(1), None)], "two": [("b", "", at(2), None)]})
    clock.advance("50 seconds")
    run.epoch({"two": [("b", "", at(90), None)]})
    run.epoch({})
    assert fired() == set()  # time is held back by one, right before 1
    clock.advance("20 seconds")
    run.epoch({})

    assert fired() == {at(1), at(2)}
