from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from riverlock.core import times
from riverlock.core.clock import ManualClock, SystemClock
from riverlock.core.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 seconds", 10_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1.5h", 5_400_000_000),
        ("interval 2 days", 172_800_000_000),
        ("5ms", 5_000),
        ("3 us", 3),
        ("1 week", 604_800_000_000),
        (timedelta(seconds=1, microseconds=1), 1_000_001),
        ("0s", 0),
    ],
)
def test_duration_us_reads_text_and_timedeltas(
    text: str | timedelta, expected: int
) -> None:
    assert times.duration_us(text) == expected


@pytest.mark.parametrize(
    "text", ["", "ten seconds", "-5 s", "5 fortnights", "5", "s", 60, None]
)
def test_duration_us_refuses_other_text(text: Any) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        times.duration_us(text)

    assert caught.value.found == repr(text)  # type: ignore[attr-defined]


def test_duration_us_refuses_negative_timedeltas() -> None:
    with pytest.raises(InvalidConfigError):
        times.duration_us(timedelta(seconds=-1))


@pytest.mark.parametrize(
    "at",
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2024, 2, 29, 12, 30, 15, 123_456, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
)
def test_micros_and_back_is_exact(at: datetime) -> None:
    assert times.from_micros(times.micros(at)) == at


def test_micros_counts_in_utc_whatever_the_zone() -> None:
    east = timezone(timedelta(hours=5))

    assert times.micros(datetime(1970, 1, 1, 5, tzinfo=east)) == 0


def test_micros_refuses_naive_datetimes() -> None:
    with pytest.raises(InvalidConfigError):
        times.micros(datetime(2024, 1, 1))  # noqa: DTZ001


def test_helpers_are_timedeltas() -> None:
    assert times.minutes(10) == timedelta(minutes=10)
    assert times.hours(1) + times.seconds(2) == timedelta(hours=1, seconds=2)
    assert times.days(2) == times.duration("2 days")
    assert times.milliseconds(5) == timedelta(milliseconds=5)
    assert times.to_iso(0) == "1970-01-01T00:00:00Z"


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(5)

    clock.advance("1 second")
    clock.advance(timedelta(microseconds=1))

    assert clock.now_us() == 1_000_006
    clock.set_us(1)
    assert clock.now_us() == 1


def test_system_clock_goes_on() -> None:
    clock = SystemClock()

    assert clock.now_us() <= clock.now_us()
