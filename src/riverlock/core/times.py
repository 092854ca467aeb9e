"""Instants and durations: aware UTC datetimes outside, microseconds inside.

The only place where numbers become datetimes and dates. Python has those of the years 1
to 9999, Spark many more, so that each conversion either is one that cannot fail (text,
or None) or says which time it was that has no datetime.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from riverlock.core.errors import InvalidConfigError, TimeRangeError

__all__ = [
    "END_US",
    "FIRST_DAY",
    "LAST_DAY",
    "START_US",
    "date_of",
    "date_text",
    "day_of",
    "days",
    "duration",
    "duration_text",
    "duration_us",
    "from_micros",
    "from_naive_micros",
    "has_datetime",
    "hours",
    "micros",
    "milliseconds",
    "minutes",
    "naive_micros",
    "nearest",
    "seconds",
    "shifted",
    "to_iso",
    "watermark_time",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = _EPOCH.replace(tzinfo=None)
# The first instant and day that Python can name, and the last ones. The last instant is
# also the watermark of an input that has ended.
START_US, END_US = -62_135_596_800_000_000, 253_402_300_799_999_999
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
_FIRST_ORDINAL = date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
# What people write, in microseconds.
_UNITS = {
    name: size
    for names, size in (
        ("us usec usecs microsecond microseconds", 1),
        ("ms msec msecs millisecond milliseconds", 1_000),
        ("s sec secs second seconds", 1_000_000),
        ("m min mins minute minutes", 60_000_000),
        ("h hr hrs hour hours", 3_600_000_000),
        ("d day days", _DAY_US),
        ("w wk wks week weeks", 7 * _DAY_US),
    )
    for name in names.split()
}
_LONG_UNITS = (
    ("day", _DAY_US),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
)
_PART = re.compile(r"\s*(?:interval\s+)?(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def duration_us(value: str | timedelta) -> int:
    """Return the microseconds of ``"1 hour 30 minutes"``, ``"5 mins"`` or a timedelta.

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
        if unit not in _UNITS:
            raise _bad(text)
        total += float(match[1]) * _UNITS[unit]
        at = match.end()
    if at == 0:
        raise _bad(text)
    return round(total)


def _bad(value: object) -> InvalidConfigError:
    return InvalidConfigError(
        "a duration",
        expected="a timedelta or text such as '10 seconds' or '1 hour 30 minutes'",
        found=repr(value),
    )


def duration(value: str | timedelta) -> timedelta:
    """Return a duration given as text or timedelta as a timedelta."""
    return timedelta(microseconds=duration_us(value))


def duration_text(us: int) -> str:
    """Return a duration as people write it.

    >>> duration_text(5_400_000_000), duration_text(0), duration_text(1_500)
    ('1 hour 30 minutes', '0 seconds', '1.5 milliseconds')
    """
    parts, rest = [], us
    for name, size in _LONG_UNITS:
        amount, rest = divmod(rest, size)
        if amount:
            parts.append(f"{amount} {name}" + ("" if amount == 1 else "s"))
    if rest:
        parts.append(f"{rest / 1000:g} milliseconds")
    return " ".join(parts) or "0 seconds"


def micros(at: datetime) -> int:
    """Return an aware instant as microseconds since 1970 in UTC."""
    try:
        is_naive = at.tzinfo is None
    except AttributeError:
        is_naive = True  # no datetime at all
    if is_naive:
        raise InvalidConfigError(
            "an instant",
            expected="a datetime with a time zone",
            found=repr(at),
            hint="write datetime.now(UTC) or datetime(..., tzinfo=UTC)",
        )
    found = _micros(at - _EPOCH)
    if not START_US <= found <= END_US:  # of the first or last day, in another zone
        raise TimeRangeError(to_iso(found))
    return found


def naive_micros(at: datetime) -> int:
    """Return a time without a zone as microseconds since 1970."""
    return _micros(at - _NAIVE_EPOCH)


def _micros(since: timedelta) -> int:
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def has_datetime(us: int) -> bool:
    """Tell whether Python can name an instant."""
    return START_US <= us <= END_US


def from_micros(us: int) -> datetime:
    """Return microseconds since 1970 as an aware UTC instant.

    Raises:
        TimeRangeError: It lies outside the years 1 to 9999.
    """
    try:
        # By position: it is called for each session.
        return _EPOCH + timedelta(0, 0, us)
    except OverflowError:
        raise TimeRangeError(to_iso(us)) from None


def from_naive_micros(us: int) -> datetime:
    """Return microseconds since 1970 as a time without a zone.

    Raises:
        TimeRangeError: It lies outside the years 1 to 9999.
    """
    return from_micros(us).replace(tzinfo=None)


def nearest(us: int) -> datetime:
    """Return the instant that Python can name which is closest to another."""
    return from_micros(min(max(us, START_US), END_US))


def watermark_time(us: int | None) -> datetime | None:
    """Return a watermark as an instant.

    None: nothing is over that Python could name. After the last instant, all is.
    """
    if us is None or us < START_US:
        return None
    return nearest(us)


def shifted(at: datetime, by: timedelta) -> datetime:
    """Return an instant after another; at most the last one there is."""
    try:
        return at + by
    except OverflowError:
        return from_micros(END_US)


def date_of(day: int) -> date:
    """Return days since 1970 as a date.

    Raises:
        TimeRangeError: It lies outside the years 1 to 9999.
    """
    if not FIRST_DAY <= day <= LAST_DAY:
        raise TimeRangeError(date_text(day))
    return date.fromordinal(day + _FIRST_ORDINAL)


def day_of(at: date) -> int:
    """Return a date as days since 1970."""
    return at.toordinal() - _FIRST_ORDINAL


def date_text(day: int) -> str:
    """Return days since 1970 as ISO 8601 text, of any year: ``+57970-11-07``."""
    # Days of the Gregorian calendar repeat after 400 years, which are 146,097 days.
    eras, rest = divmod(day - FIRST_DAY, 146_097)
    found = date.fromordinal(rest + 1)
    year = found.year + 400 * eras
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{found:%m-%d}"


def to_iso(us: int) -> str:
    """Return microseconds since 1970 as ISO 8601 text in UTC, of any year."""
    day, rest = divmod(us, _DAY_US)
    clock = (_NAIVE_EPOCH + timedelta(0, 0, rest)).time()
    return f"{date_text(day)}T{clock.isoformat()}Z"


def _span(unit: str, n: float) -> timedelta:
    try:
        return timedelta(**{unit: n})
    except (TypeError, OverflowError) as error:
        raise InvalidConfigError(
            f"{unit}()",
            expected="a number",
            found=repr(n),
            hint=f'write rl.{unit}(10), or "10 {unit}"',
        ) from error


def milliseconds(n: float) -> timedelta:
    """Return ``n`` milliseconds."""
    return _span("milliseconds", n)


def seconds(n: float) -> timedelta:
    """Return ``n`` seconds."""
    return _span("seconds", n)


def minutes(n: float) -> timedelta:
    """Return ``n`` minutes."""
    return _span("minutes", n)


def hours(n: float) -> timedelta:
    """Return ``n`` hours."""
    return _span("hours", n)


def days(n: float) -> timedelta:
    """Return ``n`` days."""
    return _span("days", n)
