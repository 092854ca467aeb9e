"""Which inputs are idle, and which hold time back."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.builders import make_manifest

from riverlock.cli import text
from riverlock.core.times import END_US
from riverlock.snapshot.format.input_times import InputTime, input_times
from riverlock.snapshot.format.records import PartitionTime, Watermark

MINUTE = 60_000_000


def found(now_us: int, **marks: Watermark) -> dict[str, InputTime]:
    manifest = make_manifest(0, watermarks=marks)
    return {i.uid: i for i in input_times(manifest, now_us=now_us, since_us=0)}


def test_the_slowest_input_that_is_awake_holds_time_back() -> None:
    inputs = found(
        10 * MINUTE,
        ahead=Watermark(watermark_us=9, active_us=9 * MINUTE),
        behind=Watermark(watermark_us=5, active_us=2 * MINUTE),
        idle=Watermark(watermark_us=1, active_us=MINUTE, idle_after_us=MINUTE),
        unseen=Watermark(idle_after_us=MINUTE),
        over=Watermark(watermark_us=END_US),
    )

    assert [uid for uid, i in inputs.items() if i.holds_back] == ["behind"]
    idle = {uid: i.idle_since_us for uid, i in inputs.items()}
    assert {u: s for u, s in idle.items() if s is not None} == {
        "idle": MINUTE,
        "unseen": 0,
    }
    said = text.holding(inputs.values(), 10 * MINUTE)
    assert said == (
        " (behind holds time back, idle idle for 9 min, unseen idle for 10 min)"
    )


def test_an_input_without_time_holds_all_others_back() -> None:
    inputs = found(5, a=Watermark(watermark_us=-7), b=Watermark())

    assert inputs["b"].holds_back
    assert not inputs["a"].holds_back


def test_inputs_that_are_equally_far_hold_nobody_back() -> None:
    same = Watermark(watermark_us=5)

    assert not any(i.holds_back for i in found(5, a=same, b=same).values())
    assert text.holding(found(5, a=same).values(), 5) == ""


def test_partitions_that_are_slow_or_idle_are_named() -> None:
    parts = {
        "0": PartitionTime(max_time_us=90, active_us=9 * MINUTE),
        "1": PartitionTime(max_time_us=50, active_us=9 * MINUTE),
        "2": PartitionTime(max_time_us=10, active_us=MINUTE),
    }
    mark = Watermark(watermark_us=9, idle_after_us=5 * MINUTE, partitions=parts)

    (only,) = found(10 * MINUTE, t=mark).values()

    assert (only.partitions, only.idle_partitions) == (3, ("2",))
    assert only.slowest_partition == "1"
    assert text.standing(only, 10 * MINUTE).endswith(
        "slowest partition '1', 1 of 3 partitions idle"
    )


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (Watermark(), "not recorded"),
        (
            Watermark(delay_us=0),
            "at its newest record; waited for, however long it is silent",
        ),
        (
            Watermark(delay_us=MINUTE, per="shard", idle_after_us=5 * MINUTE),
            "1 min behind its newest record of the slowest shard; not waited for after"
            " 5 min of silence",
        ),
        (
            Watermark(delay_us=0, is_marked=True, idle_after_us=MINUTE),
            "at its newest marker; not waited for after 1 min of silence",
        ),
    ],
)
def test_the_policy_of_an_input_is_said_in_words(mark: Watermark, said: str) -> None:
    (only,) = found(0, t=mark).values()

    assert text.policy(only) == said
