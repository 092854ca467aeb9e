"""Dates and times in UTC: days and microseconds since 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.columnar.arrays import all_valid, array_of, values
from riverlock.columnar.kernels.arithmetic import overflowing, truncated
from riverlock.columnar.kernels.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.columnar.expressions import Call
    from riverlock.columnar.wrong import Fault

__all__ = ["KERNELS", "SECOND_US"]

SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * SECOND_US
# Monday is the day 4 before the first one.
_MONDAY: Final = 3
_STEPS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND_US,
    "minute": 60 * SECOND_US,
    "hour": 3_600 * SECOND_US,
    "day": _DAY_US,
}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


def days_of(array: pa.Array) -> np.ndarray:
    """Return dates, or the dates of moments, as days."""
    if pa.types.is_date(array.type):
        return values(array).astype(np.int64)
    found: np.ndarray = values(array) // _DAY_US
    return found


def _as_dates(array: pa.Array) -> pa.Array:
    days = days_of(array).astype(np.int32)
    return array_of(days, pa.date32(), all_valid((array,)))


def _of_date(function: Callable[[pa.Array], pa.Array]) -> Kernel:
    def kernel(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
        return function(_as_dates(arguments[0])).cast(call.type.to_arrow())

    return Kernel(kernel)


def _of_day(unit: int, modulus: int) -> Kernel:
    """Return a part of the time of day."""

    def kernel(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
        (array,) = arguments
        found = values(array) // unit % modulus
        return array_of(found.astype(np.int32), call.type, all_valid(arguments))

    return Kernel(kernel)


def _truncated(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Cut moments, or dates, off to a unit."""
    (array,), (unit,) = arguments, call.options
    is_valid = all_valid(arguments)
    if unit in _STEPS:
        micros = values(array)
        return array_of(micros - micros % _STEPS[unit], call.type, is_valid)
    days = days_of(array)
    if unit == "week":
        days = days - (days + _MONDAY) % 7
    else:
        days = _first_days(days, _MONTHS[unit])
    if pa.types.is_date(array.type):
        return array_of(days.astype(np.int32), call.type, is_valid)
    return array_of(days * _DAY_US, call.type, is_valid)


def _first_days(days: np.ndarray, months: int) -> np.ndarray:
    found = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    # Months since 1970, a year that begins with one of each length.
    first = found - found % months
    return first.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _added_days(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    days, more = values(arguments[0]), values(arguments[1]).astype(np.int32)
    with np.errstate(all="ignore"):
        found = days - more if call.options[0] else days + more
    return array_of(found, call.type, all_valid(arguments))


def _days_between(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    a, b = map(values, arguments)
    with np.errstate(all="ignore"):
        found = a - b
    return array_of(found, call.type, all_valid(arguments))


def _scaled(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    """Return moments from whole numbers of a unit."""
    found, is_under, is_over = _multiplied(arguments[0], call.options[0])
    return overflowing(arguments, found, call.type, is_under | is_over, "*")


def _saturated(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Do the same; what is too far is the first moment there is, or the last."""
    found, is_under, is_over = _multiplied(arguments[0], call.options[0])
    limits = np.iinfo(np.int64)
    found = np.where(is_over, limits.max, np.where(is_under, limits.min, found))
    return array_of(found, call.type, all_valid(arguments))


def _multiplied(
    array: pa.Array, unit: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    given, limits = values(array).astype(np.int64), np.iinfo(np.int64)
    with np.errstate(all="ignore"):
        found = given * unit
    return found, given < -(-limits.min // unit), given > limits.max // unit


def _unscaled(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return moments as whole numbers of a unit."""
    (array,), (unit,) = arguments, call.options
    return array_of(values(array) // unit, call.type, all_valid(arguments))


def _unix_seconds(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return moments as seconds, cut off towards zero as Java does it."""
    micros = values(arguments[0])
    found = truncated(micros, np.full(len(micros), SECOND_US, np.int64))
    return array_of(found, call.type, all_valid(arguments))


def _shifted(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    """Add microseconds to moments."""
    (array,), (more,) = arguments, call.options
    given = values(array)
    with np.errstate(all="ignore"):
        found = given + np.int64(more)
    wrong = ((given ^ found) & (np.int64(more) ^ found)) < 0
    return overflowing(arguments, found, call.type, wrong, "+")


def _as_type(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Take numbers for those of another type, such as moments with and without zone."""
    (array,) = arguments
    return array_of(values(array), call.type, all_valid(arguments))


def _to_date(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return _as_dates(arguments[0])


def _from_date(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    days = values(arguments[0]).astype(np.int64)
    return array_of(days * _DAY_US, call.type, all_valid(arguments))


def _weekday(first: int, least: int) -> Kernel:
    """Return the number of a weekday; ``first`` is that of Thursday, the first day."""

    def kernel(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
        days = values(arguments[0]).astype(np.int64)
        found = ((days + first) % 7 + least).astype(np.int32)
        return array_of(found, call.type, all_valid(arguments))

    return Kernel(kernel)


KERNELS = {
    "year": _of_date(pc.year),
    "quarter": _of_date(pc.quarter),
    "month": _of_date(pc.month),
    "day": _of_date(pc.day),
    "day_of_year": _of_date(pc.day_of_year),
    "week_of_year": _of_date(pc.iso_week),
    "weekday": _weekday(3, 0),
    "day_of_week": _weekday(4, 1),
    "hour": _of_day(3_600 * SECOND_US, 24),
    "minute": _of_day(60 * SECOND_US, 60),
    "second": _of_day(SECOND_US, 60),
    "truncate": Kernel(_truncated),
    "add_days": Kernel(_added_days),
    "days_between": Kernel(_days_between),
    "to_moment": Kernel(_scaled, fails=True),
    "to_near_moment": Kernel(_saturated),
    "from_moment": Kernel(_unscaled),
    "unix_seconds": Kernel(_unix_seconds),
    "shift": Kernel(_shifted, fails=True),
    "as_type": Kernel(_as_type),
    "to_date": Kernel(_to_date),
    "from_date": Kernel(_from_date),
}
