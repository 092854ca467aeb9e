"""Arithmetic of numbers of 8 to 64 bits: overflow and division by zero are faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from riverlock.columnar.arrays import all_valid, array_of, values
from riverlock.columnar.kernels.kernel import Kernel
from riverlock.columnar.wrong import Fault
from riverlock.core.types import INTEGERS, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from riverlock.columnar.expressions import Call

__all__ = ["KERNELS", "overflowing", "zero_divided"]

_NAMES = {"byte": "tinyint", "short": "smallint", "int": "integer", "long": "long"}


def overflowing(
    arguments: Sequence[pa.Array],
    found: np.ndarray,
    kind: Type,
    wrong: np.ndarray | None,
    sign: str,
) -> pa.Array | Fault:
    """Return numbers, of which some do not fit their type."""
    is_valid = all_valid(arguments)
    made = array_of(found, kind, is_valid)
    if wrong is None:
        return made
    if is_valid is not None:
        wrong = wrong & is_valid
    if not wrong.any():
        return made

    def detail(place: int) -> str:
        shown = f" {sign} ".join(str(a[place]) for a in arguments)
        shown = f"{sign}{shown}" if len(arguments) == 1 else shown
        return f"{shown} does not fit {_NAMES.get(kind.kind, kind.ddl)}"

    return Fault(made, wrong, "ARITHMETIC_OVERFLOW", detail)


def zero_divided(
    arguments: Sequence[pa.Array],
    made: pa.Array,
    is_zero: np.ndarray,
    is_valid: np.ndarray | None,
    condition: str = "DIVIDE_BY_ZERO",
) -> pa.Array | Fault:
    """Return numbers of which some were divided by zero."""
    wrong = is_zero if is_valid is None else is_zero & is_valid
    if not wrong.any():
        return made
    dividend = arguments[-1]
    return Fault(made, wrong, condition, lambda at: f"{dividend[at]} divided by zero")


def _add(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    a, b = map(values, arguments)
    with np.errstate(all="ignore"):
        found = a + b
    wrong = None
    if call.type.kind in INTEGERS:
        # Both have the sign that the sum has not.
        wrong = ((a ^ found) & (b ^ found)) < 0
    return overflowing(arguments, found, call.type, wrong, "+")


def _subtract(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    a, b = map(values, arguments)
    with np.errstate(all="ignore"):
        found = a - b
    wrong = None
    if call.type.kind in INTEGERS:
        wrong = ((a ^ b) & (a ^ found)) < 0
    return overflowing(arguments, found, call.type, wrong, "-")


def _multiply(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    a, b = map(values, arguments)
    kind = call.type.kind
    with np.errstate(all="ignore"):
        found = a * b
    if kind not in INTEGERS:
        return overflowing(arguments, found, call.type, None, "*")
    if kind == "long":
        wrong = _product_overflows(a, b, found)
    else:
        wrong = found != a.astype(np.int64) * b.astype(np.int64)
    return overflowing(arguments, found, call.type, wrong, "*")


def _product_overflows(a: np.ndarray, b: np.ndarray, found: np.ndarray) -> np.ndarray:
    # The estimate is off by far less than what separates it from the bound; near it,
    # dividing back tells.
    with np.errstate(all="ignore"):
        about = np.abs(a.astype(np.float64) * b.astype(np.float64))
    wrong = about > 2.0**63 * 1.5
    unsure = ~wrong & (about > 2.0**62)
    if unsure.any():
        x, y, product = a[unsure], b[unsure], found[unsure]
        least = np.iinfo(np.int64).min
        with np.errstate(all="ignore"):
            # Here neither is zero.
            back = product // np.where(y == -1, 1, y)
            exact = product - back * np.where(y == -1, 1, y) == 0
        is_same = np.where(y == -1, x != least, exact & (back == x))
        wrong[unsure] = ~is_same
    return wrong


def _divide(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    # Here, as with remainders: the divisor comes first, since Spark evaluates it first.
    b, a = map(values, arguments)
    is_valid, is_zero = all_valid(arguments), b == 0
    with np.errstate(all="ignore"):
        found = a / np.where(is_zero, 1, b)
    made = array_of(found, call.type, is_valid)
    return zero_divided(arguments, made, is_zero, is_valid)


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return quotients of whole numbers, cut off towards zero as Java does it."""
    with np.errstate(all="ignore"):
        found: np.ndarray = a // b
        found += (a % b != 0) & ((a < 0) != (b < 0))
    return found


def _whole_quotient(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    b, a = (values(each).astype(np.int64) for each in arguments)
    is_valid, is_zero = all_valid(arguments), b == 0
    least = np.iinfo(np.int64).min
    is_over = (a == least) & (b == -1)
    found = truncated(a, np.where(is_zero | is_over, 1, b))
    made = array_of(found, call.type, is_valid)
    failed = zero_divided(arguments, made, is_zero, is_valid)
    if isinstance(failed, Fault) and not call.is_tried:
        return failed
    over = overflowing(arguments[::-1], found, call.type, is_over, "div")
    if isinstance(failed, Fault) and isinstance(over, Fault):
        return Fault(made, failed.wrong | over.wrong, over.condition, over.detail)
    return failed if isinstance(failed, Fault) else over


def _remainder(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    b, a = map(values, arguments)
    is_valid, is_zero = all_valid(arguments), b == 0
    divisor = np.where(is_zero, 1, b).astype(b.dtype)
    with np.errstate(all="ignore"):
        found = np.fmod(a, divisor)
    made = array_of(found, call.type, is_valid)
    return zero_divided(arguments, made, is_zero, is_valid, "REMAINDER_BY_ZERO")


def _positive_remainder(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    b, a = map(values, arguments)
    is_valid, is_zero = all_valid(arguments), b == 0
    # Java computes small numbers with 32 bits, and others with their own: sums of
    # those may overflow.
    wide = np.int32 if a.dtype.kind == "i" and a.itemsize < 4 else a.dtype
    a, divisor = a.astype(wide), np.where(is_zero, 1, b).astype(wide)
    with np.errstate(all="ignore"):
        first = np.fmod(a, divisor)
        found = np.where(first < 0, np.fmod(first + divisor, divisor), first)
    made = array_of(found, call.type, is_valid)
    return zero_divided(arguments, made, is_zero, is_valid, "REMAINDER_BY_ZERO")


def _negative(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    a = values(arguments[0])
    with np.errstate(all="ignore"):
        found = np.negative(a)
    return overflowing(arguments, found, call.type, _is_least(a, call.type), "-")


def _absolute(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    a = values(arguments[0])
    with np.errstate(all="ignore"):
        found = np.abs(a)
    return overflowing(arguments, found, call.type, _is_least(a, call.type), "-")


def _is_least(a: np.ndarray, kind: Type) -> np.ndarray | None:
    if kind.kind not in INTEGERS:
        return None
    found: np.ndarray = np.equal(a, np.iinfo(a.dtype).min)
    return found


def bitwise(function: Callable[..., np.ndarray]) -> Kernel:
    """Return the kernel of a function of bits."""

    def kernel(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
        found = function(*map(values, arguments))
        return array_of(found, call.type, all_valid(arguments))

    return Kernel(kernel)


def _is_whole(call: Call) -> bool:
    return call.type.kind in INTEGERS


def _may_be_zero(call: Call) -> bool:
    """Tell whether a divisor can be zero, or minus one, which overflows once."""
    divisor = getattr(call.arguments[0], "value", None)
    return divisor is None or divisor in (0, -1)


KERNELS = {
    "add": Kernel(_add, fails=_is_whole),
    "subtract": Kernel(_subtract, fails=_is_whole),
    "multiply": Kernel(_multiply, fails=_is_whole),
    "divide": Kernel(_divide, fails=_may_be_zero),
    "div": Kernel(_whole_quotient, fails=_may_be_zero),
    "remainder": Kernel(_remainder, fails=_may_be_zero),
    "pmod": Kernel(_positive_remainder, fails=_may_be_zero),
    "negative": Kernel(_negative, fails=_is_whole),
    "abs": Kernel(_absolute, fails=_is_whole),
    "bit_and": bitwise(np.bitwise_and),
    "bit_or": bitwise(np.bitwise_or),
    "bit_xor": bitwise(np.bitwise_xor),
    "bit_not": bitwise(np.invert),
}
