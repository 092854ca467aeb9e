"""Instants and durations: aware UTC datetimes outside, microseconds inside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from riverlock.core.errors import InvalidConfigError

__all__ = [
    "END_US",
    "days",
    "duration",
    "duration_us",
    "from_micros",
    "hours",
    "micros",
    "milliseconds",
    "minutes",
    "seconds",
    "to_iso",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The watermark of an input that has ended: the last instant that Python can name.
END_US = 253_402_300_799_999_999
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {
    "us": "microsecond",
    "ms": "millisecond",
    "s": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
}
_PART = re.compile(r"\s*(?:interval\s+)?(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def duration_us(value: str | timedelta) -> int:
    """Return the microseconds of ``"1 hour 30 minutes"``, ``"10s"`` or a timedelta.

    >>> duration_us("1 hour 30 minutes")
    5400000000
    >>> duration_us("10s")
    10000000
    """
    if isinstance(value, timedelta):
        total = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        total = _parse(value)
    else:
        raise _bad(value)
    if total < 0:
        raise _bad(value)
    return total


def _parse(text: str) -> int:
    at, total = 0, 0.0
    while at < len(text):
        match = _PART.match(text, at)
        if not match:
            raise _bad(text)
        unit = match[2].lower()
        unit = _SHORT.get(unit, unit.removesuffix("s"))
        if unit not in _UNITS:
            raise _bad(text)
        total += float(match[1]) * _UNITS[unit]
        at = match.end()
    if at == 0:
        raise _bad(text)
    return round(total)


def _bad(value: object) -> InvalidConfigError:
    return InvalidConfigError(
        "duration",
        expected="a timedelta or text such as '10 seconds' or '1 hour 30 minutes'",
        found=repr(value),
    )


def duration(value: str | timedelta) -> timedelta:
    """Return a duration given as text or timedelta as a timedelta."""
    return timedelta(microseconds=duration_us(value))


def micros(at: datetime) -> int:
    """Return an aware instant as microseconds since 1970 in UTC."""
    if at.tzinfo is None:
        raise InvalidConfigError(
            "instant",
            expected="a datetime with a time zone",
            found=repr(at),
            hint="write datetime.now(UTC) or datetime(..., tzinfo=UTC)",
        )
    delta = at - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_micros(us: int) -> datetime:
    """Return microseconds since 1970 as an aware UTC instant."""
    return EPOCH + timedelta(0, 0, us)  # by position: it is called for each session


def to_iso(us: int) -> str:
    """Return microseconds since 1970 as ISO 8601 text in UTC."""
    return from_micros(us).isoformat().replace("+00:00", "Z")


def milliseconds(n: float) -> timedelta:
    """Return ``n`` milliseconds."""
    return timedelta(milliseconds=n)


def seconds(n: float) -> timedelta:
    """Return ``n`` seconds."""
    return timedelta(seconds=n)


def minutes(n: float) -> timedelta:
    """Return ``n`` minutes."""
    return timedelta(minutes=n)


def hours(n: float) -> timedelta:
    """Return ``n`` hours."""
    return timedelta(hours=n)


def days(n: float) -> timedelta:
    """Return ``n`` days."""
    return timedelta(days=n)
