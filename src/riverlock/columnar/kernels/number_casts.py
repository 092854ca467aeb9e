"""Casts between numbers and truths; what does not fit is a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from riverlock.columnar.arrays import all_valid, array_of, bools_of, values
from riverlock.columnar.kernels.kernel import Kernel
from riverlock.columnar.wrong import Fault
from riverlock.core.types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.columnar.expressions import Call

__all__ = ["KERNELS", "to_whole"]


def _to_number(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    (array,) = arguments
    given = values(array)
    if call.type.kind not in INTEGERS:
        stored = np.float32 if call.type.kind == "float" else np.float64
        with np.errstate(all="ignore"):
            return array_of(given.astype(stored), call.type, all_valid(arguments))
    found, wrong = to_whole(given, INTEGERS[call.type.kind])
    made = array_of(found, call.type, all_valid(arguments))
    is_valid = all_valid(arguments)
    if wrong is None:
        return made
    wrong = wrong if is_valid is None else wrong & is_valid
    if not wrong.any():
        return made
    kind = call.type.ddl
    return Fault(
        made, wrong, "CAST_OVERFLOW", lambda at: f"{array[at]} does not fit {kind}"
    )


def to_whole(given: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return whole numbers of so many bits, cut off towards zero, and which do not fit.

    What would fit when it is rounded towards zero fits; of doubles, 2^63 does, too.
    """
    kind = np.dtype(f"int{bits}")
    if given.dtype == np.bool_ or (
        given.dtype.kind == "i" and given.itemsize * 8 <= bits
    ):
        return given.astype(kind), None
    limits = np.iinfo(kind)
    if given.dtype.kind == "i":
        return given.astype(kind), (given < limits.min) | (given > limits.max)
    with np.errstate(invalid="ignore"):
        wide = given.astype(np.float64)
        fits = (np.floor(wide) <= float(limits.max)) & (np.ceil(wide) >= limits.min)
        found = np.where(fits, wide, 0.0)
        if bits == 64:
            is_end = found >= 2.0**63
            whole = np.where(is_end, 0.0, found).astype(np.int64)
            return np.where(is_end, limits.max, whole), ~fits
        return found.astype(kind), ~fits


def _to_truth(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return bools_of(values(arguments[0]) != 0, all_valid(arguments))


def _is_narrower(call: Call) -> bool:
    given, to = call.arguments[0].type.kind, call.type.kind
    if to not in INTEGERS or given == "boolean":
        return False
    return given not in INTEGERS or INTEGERS[given] > INTEGERS[to]


KERNELS = {
    "to_number": Kernel(_to_number, fails=_is_narrower),
    "to_truth": Kernel(_to_truth),
}
