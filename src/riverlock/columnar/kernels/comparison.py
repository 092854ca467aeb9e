"""Comparisons as Spark makes them: NaN equals itself and is greatest, -0.0 is 0.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.columnar.arrays import all_valid, bools_of, valid, values
from riverlock.columnar.kernels.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.columnar.expressions import Call

__all__ = ["KERNELS", "is_less", "same"]


def _is_float(array: pa.Array) -> bool:
    return bool(pa.types.is_floating(array.type))


def same(a: pa.Array, b: pa.Array) -> pa.Array:
    """Return where two arrays are equal; null where one of them is."""
    found = pc.equal(a, b)
    if _is_float(a):
        found = pc.or_kleene(found, pc.and_kleene(pc.is_nan(a), pc.is_nan(b)))
    return found


def is_less(a: pa.Array, b: pa.Array) -> pa.Array:
    """Return where one array is less than another; null where one of them is."""
    if not _is_float(a):
        return pc.less(a, b)
    x, y = values(a), values(b)
    with np.errstate(invalid="ignore"):
        found = (x < y) | (np.isnan(y) & ~np.isnan(x))
    return bools_of(found, all_valid((a, b)))


def _equal(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return same(*arguments)


def _less(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return is_less(*arguments)


def _less_or_equal(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    a, b = arguments
    return pc.invert(is_less(b, a))


def _same_or_both_null(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    a, b = arguments
    found = pc.fill_null(same(a, b), fill_value=False)
    return pc.or_(found, pc.and_(pc.is_null(a), pc.is_null(b)))


def _not(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return pc.invert(arguments[0])


def _is_null(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return pc.is_null(arguments[0])


def _is_not_null(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return pc.is_valid(arguments[0])


def _is_nan(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return pc.fill_null(pc.is_nan(arguments[0]), fill_value=False)


def _is_in(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Tell whether a value is one of some constants; unknown if one is null."""
    (value,) = arguments
    listed, has_null = call.options
    kind = value.type
    if _is_float(value):
        # Arrow takes both zeros for different ones here.
        value = pc.add(value, pa.scalar(0.0, kind))
    found = pc.is_in(value, value_set=pa.array(listed, kind), skip_nulls=True)
    if not has_null and not value.null_count:
        return found
    is_known = found if has_null else pc.is_valid(value)
    return pc.if_else(is_known, found, pa.scalar(None, pa.bool_()))


def _extreme(take_first: Callable[[pa.Array, pa.Array], pa.Array]) -> Any:
    def kernel(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
        found, *others = arguments
        for each in others:
            better = pc.fill_null(take_first(each, found), fill_value=False)
            take = pc.and_(pc.is_valid(each), pc.or_(pc.is_null(found), better))
            found = pc.if_else(take, each, found)
        return found

    return kernel


def _not_null_count(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Tell whether so many of some values are not null (and not NaN)."""
    size = len(arguments[0])
    count = np.zeros(size, np.int32)
    for each in arguments:
        is_there = valid(each)
        there = np.ones(size, np.bool_) if is_there is None else is_there
        if _is_float(each):
            there = there & ~np.isnan(values(each))
        count += there
    return bools_of(count >= call.options[0])


def _nan_replaced(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    a, b = arguments
    return pc.if_else(pc.fill_null(pc.is_nan(a), fill_value=False), b, a)


KERNELS = {
    "equal": Kernel(_equal),
    "less": Kernel(_less),
    "less_or_equal": Kernel(_less_or_equal),
    "null_safe_equal": Kernel(_same_or_both_null, of_values=False),
    "not": Kernel(_not),
    "is_null": Kernel(_is_null, of_values=False),
    "is_not_null": Kernel(_is_not_null, of_values=False),
    "is_nan": Kernel(_is_nan, of_values=False),
    "in": Kernel(_is_in),
    "least": Kernel(_extreme(is_less), of_values=False),
    "greatest": Kernel(_extreme(lambda a, b: is_less(b, a)), of_values=False),
    "at_least": Kernel(_not_null_count, of_values=False),
    "nanvl": Kernel(_nan_replaced, of_values=False),
}
