"""Values that are made of others: structs and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.columnar.arrays import all_valid, array_of, values
from riverlock.columnar.kernels.kernel import Kernel
from riverlock.columnar.wrong import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.columnar.expressions import Call

__all__ = ["KERNELS"]


def _field(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return pc.struct_field(arguments[0], [call.options[0]])


def _sizes(array: pa.Array) -> np.ndarray:
    offsets = values(array.offsets)
    found: np.ndarray = np.diff(offsets)
    return found


def _size(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    sizes = _sizes(arguments[0]).astype(np.int32)
    return array_of(sizes, call.type, all_valid(arguments))


def _element(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    """Return an element by its place, which counts from 0, or from 1 and the end."""
    array, places = arguments
    counts_from_one, is_safe = call.options
    at, sizes = values(places).astype(np.int64), _sizes(array)
    if counts_from_one:
        index = np.where(at > 0, at - 1, sizes + at)
        is_out = (np.abs(at) > sizes) | (at == 0)
    else:
        index, is_out = at, (at < 0) | (at >= sizes)
    is_valid = all_valid(arguments)
    is_there = ~is_out if is_valid is None else ~is_out & is_valid
    first = values(array.offsets)[:-1].astype(np.int64)
    taken = array_of(np.where(is_there, first + index, 0), pa.int64(), is_there)
    found = array.values.take(taken)
    wrong = is_out if is_valid is None else is_out & is_valid
    if is_safe:
        wrong = wrong & (at == 0) & bool(counts_from_one)
    if not wrong.any():
        return found

    def detail(place: int) -> str:
        return f"an array of {sizes[place]} elements has none at {at[place]}"

    return Fault(found, wrong, "INVALID_ARRAY_INDEX", detail)


def _struct(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    fields = list(call.type.to_arrow())
    return pa.StructArray.from_arrays(list(arguments), fields=fields)


def _array(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return arrays of one element for each argument."""
    kind, width, size = call.type.to_arrow(), len(arguments), len(arguments[0])
    whole = pa.concat_arrays(list(arguments))
    order = np.arange(size * width).reshape(width, size).T.reshape(-1)
    offsets = pa.array(np.arange(size + 1, dtype=np.int32) * width)
    elements = whole.take(pa.array(order)).cast(kind.value_type)
    return pa.ListArray.from_arrays(offsets, elements).cast(kind)


KERNELS = {
    "field": Kernel(_field),
    "size": Kernel(_size),
    # Counted from one, no array has an element 0.
    "element": Kernel(_element, fails=lambda c: c.options[0] or not c.options[1]),
    "struct": Kernel(_struct, of_values=False),
    "array": Kernel(_array, of_values=False),
}
