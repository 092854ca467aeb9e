from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import riverlock
from riverlock.core import times
from riverlock.core.clock import ManualClock, SystemClock
from riverlock.core.errors import InvalidConfigError, TimeRangeError

_MIN = datetime.min.replace(tzinfo=UTC)
_MAX = datetime.max.replace(tzinfo=UTC)


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
        ("1 sec", 1_000_000),
        ("30 secs", 30_000_000),
        ("5 mins", 300_000_000),
        ("1 hr", 3_600_000_000),
        ("2 hrs 5 min", 7_500_000_000),
        ("1 day", 86_400_000_000),
        ("3 wks", 1_814_400_000_000),
        ("10 msecs", 10_000),
        ("10 msec", 10_000),
        ("7 usec", 7),
    ],
)
def test_duration_us_reads_text_and_timedeltas(
    text: str | timedelta, expected: int
) -> None:
    assert times.duration_us(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ten seconds",
        "-5 s",
        "5 fortnights",
        "5 seconde",
        "5 ss",
        "1 month",
        "5",
        "s",
        60,
        None,
    ],
)
def test_duration_us_refuses_other_text(text: Any) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        times.duration_us(text)

    assert caught.value.found == repr(text)


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


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (times.START_US, "0001-01-01T00:00:00Z"),
        (times.START_US - 1, "0000-12-31T23:59:59.999999Z"),
        (times.END_US + 1, "+10000-01-01T00:00:00Z"),
        # As java.time writes them.
        (2**63 - 1, "+294247-01-10T04:00:54.775807Z"),
        (-(2**63), "-290308-12-21T19:59:05.224192Z"),
    ],
)
def test_every_instant_has_a_text(us: int, text: str) -> None:
    assert times.to_iso(us) == text


@pytest.mark.parametrize("us", [times.START_US - 1, times.END_US + 1, 2**63 - 1])
def test_instants_without_a_datetime_are_named(us: int) -> None:
    for convert in (times.from_micros, times.from_naive_micros):
        with pytest.raises(TimeRangeError, match="outside the years 1 to 9999") as e:
            convert(us)
        assert times.to_iso(us) in str(e.value)
    assert times.nearest(us) in (_MIN, _MAX)


def test_instants_of_another_zone_may_have_no_name_in_utc() -> None:
    west = timezone(timedelta(hours=-5))
    with pytest.raises(TimeRangeError):
        times.micros(datetime(9999, 12, 31, 23, tzinfo=west))


def test_watermarks_before_time_begins_say_nothing() -> None:
    assert times.watermark_time(None) is None
    assert times.watermark_time(times.START_US - 1) is None
    assert times.watermark_time(times.START_US) == _MIN
    assert times.watermark_time(2**62) == _MAX


def test_days_and_dates() -> None:
    for day in (times.FIRST_DAY, -1, 0, 19_782, times.LAST_DAY):
        assert times.day_of(times.date_of(day)) == day
        assert times.date_text(day) == times.date_of(day).isoformat()
    with pytest.raises(TimeRangeError, match=r"\+10000-01-01"):
        times.date_of(times.LAST_DAY + 1)
    assert times.shifted(_MAX, timedelta(1)) == _MAX


def test_only_one_module_makes_datetimes_of_numbers() -> None:
    root = Path(riverlock.__file__).parent
    pattern = re.compile(
        r"fromtimestamp|fromordinal|date(time)?\(1970|_datetime_from|EPOCH \+"
        r"|timedelta\((micro)?seconds=[a-z_]*us\b"
    )
    found = {
        f"{file.relative_to(root)}:{number}"
        for file in sorted(root.rglob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if pattern.search(line) and file.name != "times.py"
    }
    assert not found


def test_columns_of_users_become_values_in_one_module() -> None:
    """``to_pylist`` fails for all rows because of one far time."""
    root = Path(riverlock.__file__).parent
    # Rows on their way out, and everything that shows stored values to people.
    folders = ("connectors", "cli", "query")
    shown = [file for name in folders for file in (root / name).rglob("*.py")]
    allowed = {
        "json_rows.py",  # whether all numbers are finite
        "decoding_step.py",  # bytes of Kafka
        "typed.py",
        "postgres_copy.py",  # bytes and text
        "reader.py",  # offsets; rows are read as columns
        "row_values.py",  # numbers
        "splits.py",  # bytes of Kafka, and which record is bad
        "spark_reader.py",  # partitions, pickled
        "staging.py",  # where a key is null; of Kafka, bytes and numbers by then
        "steps.py",  # keys, which Python has named, and ids
    }
    found = {
        file.name
        for file in shown
        if re.search(r"to_pylist|to_pydict|as_py\(", file.read_text())
    }
    assert found <= allowed


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
