"""Dates and times, in UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.columnar import Moment
from riverlock.core.types import INTEGERS, Type
from riverlock.spark.columnar.functions.builder import Builder, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar import Expression
    from riverlock.spark.columnar.compiler import Compiler

__all__ = ["BUILDERS", "check_zone"]

_DATE, _TIMESTAMP, _STRING = Type("date"), Type("timestamp"), Type("string")
_UTC = ("UTC", "Z", "GMT", "Etc/UTC", "+00:00")
_PLAIN_FORMAT = "yyyy-MM-dd HH:mm:ss"
_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
    **dict.fromkeys(("DAY", "DD"), "day"),
    **{n.upper(): n for n in ("hour", "minute", "second")},
    **{n.upper(): n for n in ("millisecond", "microsecond")},
}
_OF_DATES = ("year", "quarter", "month", "week")


def check_zone(compiler: Compiler, node: Any) -> None:
    """Refuse what depends on a zone that is not UTC.

    Raises:
        Refused: It does.
    """
    zone = node.timeZoneId()
    if zone.isDefined() and str(zone.get()) not in _UTC:
        raise compiler.refused(node, f"in the time zone {zone.get()}")


def _zoned(name: str) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        (child,) = compiler.children(node)
        if child.type.kind not in ("timestamp", "timestamp_ntz"):
            raise compiler.refused(node, f"of {child.type.ddl}")
        if child.type.kind == "timestamp":
            check_zone(compiler, node)
        return compiler.call(name, (child,), compiler.type_of(node), node=node)

    return build


def _truncated(compiler: Compiler, node: Any) -> Expression:
    check_zone(compiler, node)
    return _cut(compiler, node, node.timestamp(), tuple(_UNITS.values()))


def _truncated_date(compiler: Compiler, node: Any) -> Expression:
    return _cut(compiler, node, node.date(), _OF_DATES)


def _cut(
    compiler: Compiler, node: Any, given: Any, known: tuple[str, ...]
) -> Expression:
    name, kind = compiler.constant(node.format()), compiler.type_of(node)
    unit = None if name is None else _UNITS.get(name.upper())
    if unit not in known:
        return compiler.literal(None, kind)
    return compiler.call("truncate", (compiler.of(given),), kind, unit, node=node)


def _to_moment(unit: int) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        (child,) = compiler.children(node)
        if child.type.kind not in INTEGERS:
            raise compiler.refused(node, f"of {child.type.ddl}")
        return compiler.call("to_moment", (child,), _TIMESTAMP, unit, node=node)

    return build


def _from_moment(unit: int) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        (child,) = compiler.children(node)
        return compiler.call("from_moment", (child,), Type("long"), unit, node=node)

    return build


def _unix_time(compiler: Compiler, node: Any) -> Expression:
    """Compile the seconds of a moment or a date; text would need a format."""
    child = compiler.of(node.left())
    if child.type.kind == "date":
        child = compiler.call("from_date", (child,), _TIMESTAMP)
    if child.type.kind != "timestamp":
        raise compiler.refused(node, f"of {child.type.ddl}")
    check_zone(compiler, node)
    return compiler.call("unix_seconds", (child,), Type("long"), node=node)


def _from_unix_time(compiler: Compiler, node: Any) -> Expression:
    """Compile the text of a number of seconds, in the usual format."""
    pattern = compiler.constant(node.format())
    if pattern != _PLAIN_FORMAT:
        raise compiler.refused(node, f"with the format {pattern!r}")
    check_zone(compiler, node)
    seconds = compiler.of(node.sec())
    moment = compiler.call("to_moment", (seconds,), _TIMESTAMP, 1_000_000, node=node)
    return compiler.call("unix_to_text", (moment,), _STRING, node=node)


def _days(*, is_back: bool) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        found = compiler.children(node)
        return compiler.call("add_days", found, _DATE, is_back, node=node)

    return build


def _shifted(compiler: Compiler, node: Any) -> Expression:
    """Compile the sum of a moment and a constant length of time."""
    given, length = node.left(), node.right()
    if "DayTimeInterval" not in length.dataType().toString() or not length.foldable():
        raise compiler.refused(node, "with an interval that is no constant")
    check_zone(compiler, node)
    micros = length.eval(None)
    moment = compiler.of(given)
    if micros is None:
        return compiler.literal(None, moment.type)
    return compiler.call("shift", (moment,), moment.type, int(micros), node=node)


def _now(compiler: Compiler, node: Any) -> Expression:
    return compiler.made(Moment, compiler.type_of(node))


def _today(compiler: Compiler, node: Any) -> Expression:
    check_zone(compiler, node)
    now = compiler.made(Moment, _TIMESTAMP)
    return compiler.call("to_date", (now,), _DATE, node=node)


BUILDERS: Mapping[str, Builder] = {
    "Year": plain("year"),
    "Quarter": plain("quarter"),
    "Month": plain("month"),
    "DayOfMonth": plain("day"),
    "DayOfYear": plain("day_of_year"),
    "WeekOfYear": plain("week_of_year"),
    "WeekDay": plain("weekday"),
    "DayOfWeek": plain("day_of_week"),
    "Hour": _zoned("hour"),
    "Minute": _zoned("minute"),
    "Second": _zoned("second"),
    "TruncTimestamp": _truncated,
    "TruncDate": _truncated_date,
    "SecondsToTimestamp": _to_moment(1_000_000),
    "MillisToTimestamp": _to_moment(1_000),
    "MicrosToTimestamp": _to_moment(1),
    "UnixSeconds": _from_moment(1_000_000),
    "UnixMillis": _from_moment(1_000),
    "UnixMicros": _from_moment(1),
    "UnixDate": plain("as_type"),
    "DateFromUnixDate": plain("as_type"),
    "ToUnixTimestamp": _unix_time,
    "UnixTimestamp": _unix_time,
    "FromUnixTime": _from_unix_time,
    "DateAdd": _days(is_back=False),
    "DateSub": _days(is_back=True),
    "DateDiff": plain("days_between"),
    "TimestampAddInterval": _shifted,
    "CurrentTimestamp": _now,
    "Now": _now,
    "LocalTimestamp": _now,
    "CurrentDate": _today,
}
