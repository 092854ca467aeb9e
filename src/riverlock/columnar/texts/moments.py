"""Dates and times in text, as Spark's casts read them."""

from __future__ import annotations

import re
from datetime import UTC, date, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from riverlock.core import times

__all__ = ["day_of", "instant_of", "local_of", "trimmed", "zone_of"]

_SPAN_DAYS: Final = 146_097
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
# What Spark takes for blank around numbers and times: white space, control characters.
_BLANK: Final = "".join(map(chr, [*range(33), 127]))
_DATE: Final = re.compile(
    r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})([ T].*)?)?)?"
)
_TIME: Final = (
    r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*|\.)?)?)?"
)
_MOMENT: Final = re.compile(
    rf"([+-]?)([0-9]{{4,6}})(?:-([0-9]{{1,2}})(?:-([0-9]{{1,2}})(?:[ T]{_TIME})?)?)?",
    re.DOTALL,
)
_JUST_TIME: Final = re.compile(rf"T?{_TIME}", re.DOTALL)
_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?"
)
_REGION: Final = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
_SHORT: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AST": "America/Anchorage",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}


def trimmed(text: str) -> str:
    """Return text without what Spark takes for blank around a value."""
    return text.strip(_BLANK)


def day_of(text: str) -> int | None:
    """Return a date as days since 1970; None: it is none."""
    given = trimmed(text)
    found = _DATE.fullmatch(given)
    if found is None:
        return None
    sign, year, month, day, _ = found.groups()
    # A year or a month alone must be all there is: nothing blank behind it.
    if day is None and not text.endswith(given):
        return None
    return _days(sign, year, month, day)


def _days(sign: str, year: str, month: str | None, day: str | None) -> int | None:
    number = -int(year) if sign == "-" else int(year)
    m, d = int(month or 1), int(day or 1)
    # A span of 400 years has as many days each time.
    spans, within = divmod(number - 1, 400)
    try:
        found = times.day_of(date(within + 1, m, d))
    except ValueError:
        return None
    return found + spans * _SPAN_DAYS


def instant_of(text: str, zone: str, now_us: int | None) -> int | None:
    """Return a moment in microseconds since 1970; None: it is none.

    Args:
        text: It may name its zone.
        zone: That of moments that do not.
        now_us: Says which day it is, for times without one; None: they are none.
    """
    parts = _parts(text)
    if parts is None:
        return None
    days, micros, named = parts
    where = zone_of(zone if named is None else named)
    if where is None:
        return None
    if days is None:
        if now_us is None:
            return None
        days = times.day_of(times.from_micros(now_us).astimezone(where).date())
    local = days * _DAY_US + micros
    offset = _offset(where, local)
    found = None if offset is None else local - offset // timedelta(microseconds=1)
    return found if found is not None and _LEAST <= found <= _MOST else None


def _offset(where: tzinfo, local: int) -> timedelta | None:
    """Return how far a zone is from UTC; None: Python does not know."""
    if isinstance(where, timezone):
        return where.utcoffset(None)
    if not times.has_datetime(local):
        return None
    try:
        return times.from_micros(local).replace(tzinfo=where).utcoffset()
    except (OverflowError, ValueError):
        return None


def local_of(text: str, *, allows_zone: bool = True) -> int | None:
    """Return a moment without a zone in microseconds; a zone in the text is dropped."""
    parts = _parts(text)
    if parts is None or parts[0] is None:
        return None
    if parts[2] is not None and (not allows_zone or zone_of(parts[2]) is None):
        return None
    found = parts[0] * _DAY_US + parts[1]
    return found if _LEAST <= found <= _MOST else None


def _parts(text: str) -> tuple[int | None, int, str | None] | None:
    """Return the day, the time of day in microseconds, and the name of a zone."""
    given = trimmed(text)
    found = _MOMENT.fullmatch(given)
    if found is not None:
        sign, year, month, day, *time = found.groups()
        days = _days(sign, year, month, day)
        micros = _micros(*time)
        named = time[4]
        if days is None or micros is None:
            return None
        return days, micros, None if named is None else named.strip(_BLANK)
    just = _JUST_TIME.fullmatch(given)
    if just is None or (just[2] is None and not given.startswith("T")):
        return None
    micros = _micros(*just.groups())
    named = just[5]
    if micros is None:
        return None
    return None, micros, None if named is None else named.strip(_BLANK)


def _micros(
    hour: str | None,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    _: str | None,
) -> int | None:
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        return None
    part = int((fraction or "")[:6].ljust(6, "0"))
    return ((h * 60 + m) * 60 + s) * _SECOND_US + part


@lru_cache(maxsize=1_024)
def zone_of(name: str) -> tzinfo | None:
    """Return a zone by a name that Java knows; None: there is none."""
    name = _SHORT.get(name, name)
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    name = re.sub(r"([+-])([0-9]):", r"\g<1>0\2:", name, count=1)
    name = re.sub(r"([+-][0-9]{2}):([0-9])$", r"\1:0\2", name, count=1)
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        return _fixed(offset)
    if _REGION.fullmatch(name) is None:
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError):
        return None


def _fixed(found: re.Match[str]) -> tzinfo | None:
    sign, hours, minutes, seconds = found.groups()
    h, m, s = int(hours), int(minutes or 0), int(seconds or 0)
    if m > 59 or s > 59 or (h * 3600 + m * 60 + s) > 18 * 3600:
        return None
    size = timedelta(hours=h, minutes=m, seconds=s)
    return timezone(-size if sign == "-" else size)
