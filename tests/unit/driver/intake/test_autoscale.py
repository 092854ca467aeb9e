"""The policy of ``parallelism="auto"``."""

from __future__ import annotations

from itertools import pairwise

from riverlock.driver.intake.autoscale import Autoscale

SECOND = 1_000_000


def story(scale: Autoscale, start: int, epochs: list[tuple[int, int]]) -> list[int]:
    """Return the parallelism after each epoch, given waiting rows and durations."""
    found, now = [], start
    for lag, took_us in epochs:
        now = scale.wanted(now, rows=100, lag_rows=lag, took_us=took_us)
        found.append(now)
    return found


def test_a_backlog_that_stays_doubles_the_tasks_up_to_the_most() -> None:
    scale = Autoscale(most=6, target_us=SECOND)

    found = story(scale, 1, [(1000, SECOND)] * 30)

    assert found[:3] == [1, 1, 2]
    assert sorted(set(found)) == [1, 2, 4, 6]
    assert found == sorted(found)


def test_one_burst_changes_nothing() -> None:
    scale = Autoscale(most=8, target_us=SECOND)
    calm, burst = [(0, SECOND)] * 5, [(1000, SECOND)] * 2

    assert set(story(scale, 2, (burst + calm) * 10)) == {2}


def test_long_idleness_halves_the_tasks_and_each_change_rests() -> None:
    scale = Autoscale(most=8, target_us=SECOND)

    found = story(scale, 8, [(0, SECOND // 10)] * 100)

    assert found[18:20] == [8, 4]
    assert found[-1] == 1
    changes = [i for i in range(1, 100) if found[i] != found[i - 1]]
    assert min(b - a for a, b in pairwise(changes)) >= 20


def test_what_is_neither_late_nor_idle_stays() -> None:
    scale = Autoscale(most=8, target_us=SECOND)

    assert set(story(scale, 4, [(150, SECOND), (0, SECOND // 2)] * 50)) == {4}
