"""A stage that nobody is there to run ends with an error, and no other does."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from riverlock.core.clock import ManualClock
from riverlock.core.errors import ClusterLostError, EpochAbortedError
from riverlock.driver.attendance import Absence, Attendance

MINUTE_US = 60_000_000
SECONDS = 10.0  # a bound for what is broken; nothing waits for it


def test_only_absence_without_a_break_counts() -> None:
    absence = Absence(2 * MINUTE_US)
    counts = [1, 0, 0, 1, 0, 0, 0]

    told = [absence.note(n, now_us=at * MINUTE_US) for at, n in enumerate(counts)]

    assert told == [False, False, False, False, False, False, True]


def attendance(executors: Callable[[], int | None], clock: ManualClock) -> Attendance:
    return Attendance(
        master="spark://there:7077",
        executors=executors,
        clock=clock,
        limit_us=2 * MINUTE_US,
        look_seconds=0,
    )


def test_a_stage_without_executors_is_cancelled_and_told() -> None:
    clock, cancelled = ManualClock(), threading.Event()

    def nobody() -> int:
        clock.advance("30 seconds")
        return 0

    def job() -> None:
        """Wait without end, as Spark does, until it is cancelled."""
        with attendance(nobody, clock).kept(7, cancelled.set):
            assert cancelled.wait(SECONDS)
            raise RuntimeError("job cancelled")

    with pytest.raises(ClusterLostError, match="no executor for 120 seconds") as found:
        job()

    assert "epoch 7" in str(found.value)
    assert "executor_timeout" in found.value.hint


def test_a_stage_that_goes_well_is_left_alone() -> None:
    looked = threading.Event()

    def one() -> int:
        looked.set()
        return 1

    with attendance(one, ManualClock()).kept(7, lambda: pytest.fail("cancelled")):
        assert looked.wait(SECONDS)


@pytest.mark.parametrize("count", [1, None])
def test_other_errors_are_told_as_they_are(count: int | None) -> None:
    error = EpochAbortedError(epoch=7, reason="a task failed", cause="disk full")

    with (
        pytest.raises(EpochAbortedError, match="disk full"),
        attendance(lambda: count, ManualClock()).kept(7, lambda: None),
    ):
        raise error
