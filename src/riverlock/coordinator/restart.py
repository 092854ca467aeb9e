"""How often, and after how long, a failed step is tried again.

Delays are exact here; the shell may add jitter, since chance is not ours to draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

__all__ = [
    "ExponentialDelay",
    "FixedDelay",
    "NoRestart",
    "RestartPolicy",
    "delay_us",
    "patient_delay_us",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRestart:
    """The first failure stops the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDelay:
    """The same delay before each of at most ``attempts`` further attempts."""

    delay_us: int
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialDelay:
    """A delay that doubles from ``initial_us`` up to ``max_us``."""

    initial_us: int
    max_us: int
    attempts: int


RestartPolicy: TypeAlias = NoRestart | FixedDelay | ExponentialDelay


def delay_us(policy: RestartPolicy, failures: int) -> int | None:
    """Return how long to wait after the given number of failures, or None: give up.

    Failures are counted since the last committed epoch, the one at hand included.

    >>> policy = ExponentialDelay(initial_us=100, max_us=350, attempts=3)
    >>> [delay_us(policy, n) for n in (1, 2, 3, 4)]
    [100, 200, 350, None]
    """
    match policy:
        case NoRestart():
            return None
        case FixedDelay():
            return policy.delay_us if failures <= policy.attempts else None
        case ExponentialDelay():
            if failures > policy.attempts:
                return None
            return _doubled_us(policy, failures)
        case _:
            assert_never(policy)


def _doubled_us(policy: ExponentialDelay, failures: int) -> int:
    # The exponent is bounded, since attempts may be many.
    return min(policy.max_us, policy.initial_us << min(failures - 1, 62))


def patient_delay_us(policy: RestartPolicy, failures: int) -> int | None:
    """Return how long to wait for what is sure to come back; only NoRestart gives up.

    >>> policy = ExponentialDelay(initial_us=100, max_us=350, attempts=2)
    >>> [patient_delay_us(policy, n) for n in (1, 2, 3, 4)]
    [100, 200, 350, 350]
    """
    match policy:
        case NoRestart():
            return None
        case FixedDelay():
            return policy.delay_us
        case ExponentialDelay():
            return _doubled_us(policy, failures)
        case _:
            assert_never(policy)
