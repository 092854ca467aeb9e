"""Dates and times in text, by examples of what Spark's casts take them for."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from riverlock.columnar.texts.moments import day_of, instant_of, local_of

NOON_US = int(datetime(2024, 3, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2024-02-29", date(2024, 2, 29)),
        (" 2024-3-1\n", date(2024, 3, 1)),
        ("2024-03-01T what follows", date(2024, 3, 1)),
        ("2024", date(2024, 1, 1)),
        ("2024 ", None),
        ("2023-02-29", None),
        ("20240301", None),
        ("", None),
    ],
)
def test_a_date_is_read_as_spark_reads_it(text: str, day: date | None) -> None:
    expected = None if day is None else (day - date(1970, 1, 1)).days

    assert day_of(text) == expected


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-03-01 12:34:56.1234567", "2024-03-01T12:34:56.123456+00:00"),
        ("2024-03-01T1:2:3Z", "2024-03-01T01:02:03+00:00"),
        ("2024-03-01 12:34:56+01:00", "2024-03-01T11:34:56+00:00"),
        ("2024-03-01 12:34:56 +1:00", "2024-03-01T11:34:56+00:00"),
        # An hour that does not exist, and one that exists twice.
        ("2024-03-31 02:30:00 Europe/Berlin", "2024-03-31T01:30:00+00:00"),
        ("2024-10-27 02:30:00 Europe/Berlin", "2024-10-27T00:30:00+00:00"),
        ("2024-03-01 12:34:56 CST", "2024-03-01T18:34:56+00:00"),
        ("12:34", "2024-03-01T12:34:00+00:00"),
        ("2024-03-01 24:00:00", None),
        ("2024-03-01 12:34:56 Nowhere/At all", None),
        ("2024-03-01x", None),
    ],
)
def test_a_moment_is_read_as_spark_reads_it(text: str, moment: str | None) -> None:
    found = instant_of(text, "UTC", NOON_US)

    if moment is None:
        assert found is None
    else:
        assert found is not None
        at = datetime.fromisoformat(moment)
        assert found == int(at.timestamp()) * 1_000_000 + at.microsecond


def test_a_moment_without_zone_has_none_or_loses_it() -> None:
    assert local_of("2024-03-01 12:00:00+05:00") == NOON_US
    assert local_of("2024-03-01 12:00:00+05:00", allows_zone=False) is None
    assert local_of("12:00") is None
