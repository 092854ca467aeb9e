"""Ids of many keys at once, as Arrow columns: those of ``keys``, without a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.state.columns.packed import bytes_of, joined, packed
from riverlock.state.keys import MAX_KEY, key_ids, ordinal_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.state.columns.packed import Part

__all__ = [
    "group_column",
    "id_column",
    "ordered_id_column",
    "ordinals_of",
    "sorted_places",
    "without_ordinal",
]

# Longer ones are compared.
_MAX_SORTED = 32
# Group and ordinal, in front of the key.
_ORDERED_HEAD = 12


def id_column(
    groups: pa.Array,
    columns: Sequence[pa.Array],
    values: Callable[[], Sequence[Sequence[Any]]],
) -> pa.BinaryArray:
    """Return the ids of keys.

    Args:
        groups: Their key groups.
        columns: The key columns.
        values: Returns them as Python values, for keys that need it.
    """
    found = _ids(_group_bytes(groups), columns)
    if found is not None:
        return found
    return pa.array(key_ids(groups.to_pylist(), values()), pa.binary())


def ordered_id_column(
    groups: pa.Array,
    ordinals: np.ndarray,
    columns: Sequence[pa.Array],
    values: Callable[[], Sequence[Sequence[Any]]],
) -> pa.BinaryArray:
    """Return the ids of keys that a number orders: group, ordinal, key.

    Args:
        groups: Their key groups.
        ordinals: The number that orders each within its group.
        columns: The other key columns; there may be none.
        values: Returns those as Python values, for keys that need it.
    """
    head = np.empty((len(groups), _ORDERED_HEAD), dtype=np.uint8)
    head[:, :2] = _group_bytes(groups)
    head[:, 2:4] = np.frombuffer(ordinal_bytes(0)[:2], dtype=np.uint8)
    shifted = ordinals.astype(np.int64).view(np.uint64) + np.uint64(1 << 63)
    head[:, 4:] = shifted.astype(">u8").view(np.uint8).reshape(-1, 8)
    found = _ids(head, columns)
    if found is not None:
        return found
    plain = pa.array(key_ids(groups.to_pylist(), values()), pa.binary())
    return joined([_whole(head), pc.binary_slice(plain, 2, 2 + MAX_KEY)])


def ordinals_of(ids: pa.BinaryArray) -> np.ndarray:
    """Return the numbers that order ids within their groups."""
    data, offsets = bytes_of(ids)
    raw = data[offsets[:-1, None] + np.arange(4, _ORDERED_HEAD)]
    shifted = np.ascontiguousarray(raw).view(">u8").ravel().astype(np.uint64)
    found: np.ndarray = (shifted - np.uint64(1 << 63)).view(np.int64)
    return found


def group_column(ids: pa.BinaryArray) -> pa.Array:
    """Return the key groups of ids."""
    data, offsets = bytes_of(ids)
    starts = offsets[:-1]
    groups = data[starts].astype(np.int32) << 8 | data[starts + 1]
    return pa.array(groups, pa.int32())


def without_ordinal(ids: pa.BinaryArray) -> pa.BinaryArray:
    """Return ids with zeros for the number that orders them, as if all had one."""
    data, offsets = bytes_of(ids)
    first, last = int(offsets[0]), int(offsets[-1])
    begins, data = offsets - first, data[first:last].copy()
    data[begins[:-1, None] + np.arange(2, _ORDERED_HEAD)] = 0
    buffers = [None, pa.py_buffer(begins.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ids), buffers)


def _group_bytes(groups: pa.Array) -> np.ndarray:
    found: np.ndarray = groups.to_numpy().astype(">u2").view(np.uint8).reshape(-1, 2)
    return found


def _whole(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return matrix, np.full(len(matrix), matrix.shape[1])


def _ids(head: np.ndarray, columns: Sequence[pa.Array]) -> pa.BinaryArray | None:
    """Return keys behind some bytes; None if one is too long, or takes Python."""
    parts: list[Part] = [_whole(head)]
    for column in columns:
        # -0.0 is 0.0 as a key, and there is one NaN.
        is_plain = not column.null_count and not pa.types.is_floating(column.type)
        found = packed(column) if is_plain else None
        if found is None:
            return None
        parts += found
    ids = joined(parts)
    longest = MAX_KEY + head.shape[1]
    return ids if (pc.max(pc.binary_length(ids)).as_py() or 0) <= longest else None


def sorted_places(ids: pa.BinaryArray) -> np.ndarray:
    """Return where the ids are in their order, smallest first."""
    lengths = pc.binary_length(ids).to_numpy()
    width = int(lengths.max(initial=1))
    if len(ids) and width <= _MAX_SORTED:
        matrix = np.zeros((len(ids), width), dtype=np.uint8)
        data, offsets = bytes_of(ids)
        used = data[offsets[0] : offsets[-1]]
        matrix[np.arange(width) < lengths[:, None]] = used
        words = _words(matrix)
        order = np.argsort(words[0]) if len(words) == 1 else np.lexsort(words[::-1])
        # Padding makes none of them equal unless one is another one with zeros behind.
        if _is_increasing([word[order] for word in words]):
            return order
    places: np.ndarray = pc.sort_indices(ids).to_numpy()
    return places


def _words(matrix: np.ndarray) -> list[np.ndarray]:
    """Return rows of bytes as few numbers that sort as they do, first word first.

    Bits that are the same in all rows decide nothing, and are left out where none but
    such are before them in their byte: of an ordinal, most are. NumPy sorts
    single numbers four times as fast as pairs.
    """
    varying = np.bitwise_or.reduce(matrix ^ matrix[0], axis=0)
    words, free = [np.zeros(len(matrix), dtype=np.uint64)], 64
    for place, bits in enumerate(int(v).bit_length() for v in varying.tolist()):
        if bits > free:
            words.append(np.zeros(len(matrix), dtype=np.uint64))
            free = 64
        if bits:
            kept = matrix[:, place] & np.uint8((1 << bits) - 1)
            words[-1] = words[-1] << np.uint64(bits) | kept
            free -= bits
    return words


def _is_increasing(words: Sequence[np.ndarray]) -> bool:
    differ = [word[1:] != word[:-1] for word in words]
    return bool(np.all(np.logical_or.reduce(differ)))
