"""Arrow arrays as NumPy's and back, without copying values; nulls are a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.core.types import Type

__all__ = [
    "all_valid",
    "array_of",
    "bools",
    "bools_of",
    "constant",
    "nulled",
    "scattered",
    "truths",
    "valid",
    "values",
]

_STORED = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.date32(): np.int32,
}


def values(array: pa.Array) -> np.ndarray:
    """Return the numbers of an array; anything where it is null."""
    if pa.types.is_boolean(array.type):
        return bools(array)
    kind = _STORED.get(array.type, np.int64)  # times have 64 bits
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), kind)
    found = np.frombuffer(buffer, kind, len(array) + array.offset)
    return found[array.offset :]


def bools(array: pa.Array) -> np.ndarray:
    """Return truths as NumPy's; anything where there is a null."""
    return _bits(array.buffers()[1], array)


def truths(array: pa.Array) -> np.ndarray:
    """Return where an array is true, which a null is not."""
    is_valid = valid(array)
    found = bools(array)
    return found if is_valid is None else found & is_valid


def valid(array: pa.Array) -> np.ndarray | None:
    """Return where an array has values; None: everywhere."""
    if not array.null_count:
        return None
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    return _bits(array.buffers()[0], array)


def _bits(buffer: pa.Buffer | None, array: pa.Array) -> np.ndarray:
    if buffer is None:
        return np.zeros(len(array), np.bool_)
    first, last = array.offset, array.offset + len(array)
    whole = np.frombuffer(buffer, np.uint8, (last + 7) // 8)[first // 8 :]
    bits = np.unpackbits(whole, bitorder="little").view(np.bool_)
    return bits[first % 8 : first % 8 + len(array)]


def all_valid(arrays: Sequence[pa.Array]) -> np.ndarray | None:
    """Return where all of some arrays have values; None: everywhere."""
    found: np.ndarray | None = None
    for array in arrays:
        mine = valid(array)
        if mine is not None:
            found = mine if found is None else found & mine
    return found


def array_of(
    found: np.ndarray, kind: Type | pa.DataType, is_valid: np.ndarray | None = None
) -> pa.Array:
    """Return numbers of NumPy as an array of a type of the same width."""
    arrow = kind if isinstance(kind, pa.DataType) else kind.to_arrow()
    if pa.types.is_boolean(arrow):
        return bools_of(found, is_valid)
    stored = np.ascontiguousarray(found, _STORED.get(arrow, np.int64))
    return pa.Array.from_buffers(
        arrow, len(stored), [_packed(is_valid), pa.py_buffer(stored)]
    )


def bools_of(found: np.ndarray, is_valid: np.ndarray | None = None) -> pa.Array:
    """Return truths of NumPy as an array."""
    return pa.Array.from_buffers(
        pa.bool_(), len(found), [_packed(is_valid), _packed(found)]
    )


def _packed(bits: np.ndarray | None) -> pa.Buffer | None:
    if bits is None:
        return None
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def nulled(array: pa.Array, where: np.ndarray) -> pa.Array:
    """Return an array that is also null where a mask says so."""
    kept = bools_of(~where)
    return _if_else(kept, array, pa.scalar(None, array.type))


def _if_else(condition: pa.Array, one: Any, other: Any) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(condition, one, other)


def constant(value: Any, kind: pa.DataType, size: int) -> pa.Array:
    """Return the same value for all rows."""
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value, kind)
    return pa.repeat(scalar, size)


def scattered(
    parts: Sequence[tuple[np.ndarray, pa.Array]], kind: pa.DataType, size: int
) -> pa.Array:
    """Return rows from parts, each with its places; the others are null."""
    if not parts:
        return pa.nulls(size, kind)
    at = np.full(size, -1, np.int64)
    first = 0
    for places, _ in parts:
        at[places] = np.arange(first, first + len(places))
        first += len(places)
    whole = pa.concat_arrays([part for _, part in parts])
    return whole.take(array_of(at, pa.int64(), at >= 0))
