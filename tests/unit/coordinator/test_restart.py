"""Delays after failures."""

from __future__ import annotations

import pytest

from riverlock.coordinator import (
    ExponentialDelay,
    FixedDelay,
    NoRestart,
    RestartPolicy,
)
from riverlock.coordinator.restart import delay_us


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (NoRestart(), [None, None]),
        (FixedDelay(delay_us=5, attempts=2), [5, 5, None]),
        (FixedDelay(delay_us=5, attempts=0), [None]),
        (
            ExponentialDelay(initial_us=10, max_us=35, attempts=4),
            [10, 20, 35, 35, None],
        ),
    ],
    ids=["none", "fixed", "fixed, no attempt", "exponential"],
)
def test_policy_gives_delays_then_gives_up(
    policy: RestartPolicy, delays: list[int | None]
) -> None:
    assert [delay_us(policy, n) for n in range(1, len(delays) + 1)] == delays


def test_exponential_delay_stays_bounded_for_ever() -> None:
    policy = ExponentialDelay(initial_us=10, max_us=1000, attempts=10**9)

    assert delay_us(policy, 10**8) == 1000
