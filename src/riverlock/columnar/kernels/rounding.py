"""Rounding, and hashes."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from riverlock.columnar.arrays import all_valid, array_of, values
from riverlock.columnar.hashes import hashes_of
from riverlock.columnar.kernels.arithmetic import overflowing
from riverlock.columnar.kernels.kernel import Kernel
from riverlock.columnar.kernels.number_casts import to_whole
from riverlock.core.types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.columnar.expressions import Call
    from riverlock.columnar.wrong import Fault

__all__ = ["KERNELS"]

_WAYS = {"half_up": ROUND_HALF_UP, "half_even": ROUND_HALF_EVEN}


def _whole(function: Any) -> Kernel:
    """Return the kernel of a function to whole numbers."""

    def kernel(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
        given = values(arguments[0])
        if given.dtype.kind == "i":
            return array_of(given.astype(np.int64), call.type, all_valid(arguments))
        with np.errstate(all="ignore"):
            found = function(np.where(np.isnan(given), 0.0, given.astype(np.float64)))
        made, wrong = to_whole(found, 64)
        assert wrong is not None
        # A cast would take this one.
        wrong = wrong | (found == 2.0**63)
        return overflowing(arguments, made, call.type, wrong, call.name)

    return Kernel(kernel, fails=_is_real)


def _is_real(call: Call) -> bool:
    return call.arguments[0].type.kind not in INTEGERS


def _rounded(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    """Round by the decimal digits that a number is written with."""
    (array,), (scale, way) = arguments, call.options
    unit = Decimal(1).scaleb(-scale)
    is_whole = call.type.kind in INTEGERS
    if is_whole and scale >= 0:
        return array
    found: list[Any] = []
    for each in array.to_pylist():
        if each is None or each - each != 0:
            found.append(each)
            continue
        exact = Decimal(each) if is_whole else Decimal(repr(each))
        if exact.adjusted() + scale > _DIGITS:
            found.append(each)
            continue
        made = exact.quantize(unit, _WAYS[way])
        # Java's decimals have no zero that is negative.
        found.append(int(made) if is_whole else float(made) + 0.0)
    if not is_whole:
        numbers = np.array([0.0 if v is None else v for v in found], np.float64)
        return array_of(numbers, call.type, all_valid(arguments))
    limits = np.iinfo(values(array).dtype)
    known = [0 if v is None else v for v in found]
    wrong = np.array([not limits.min <= v <= limits.max for v in known], np.bool_)
    fitting = [0 if w else v for v, w in zip(known, wrong.tolist(), strict=True)]
    numbers = np.array(fitting, np.int64).astype(limits.dtype)
    return overflowing(arguments, numbers, call.type, wrong, "round")


# More than the digits of any number: they are left as they are.
_DIGITS = 25


def _hash(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    size = len(arguments[0])
    kinds = [each.type for each in call.arguments]
    pairs = zip(arguments, kinds, strict=True)
    return array_of(hashes_of(pairs, size, call.options[0]), call.type)


def _root(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    with np.errstate(all="ignore"):
        return array_of(np.sqrt(values(arguments[0])), call.type, all_valid(arguments))


def _round_fails(call: Call) -> bool:
    return call.type.kind in INTEGERS and call.options[0] < 0


KERNELS = {
    "floor": _whole(np.floor),
    "ceil": _whole(np.ceil),
    "round": Kernel(_rounded, fails=_round_fails),
    "sqrt": Kernel(_root),
    "xxhash64": Kernel(_hash, of_values=False),
}
