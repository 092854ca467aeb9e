"""Ids of many keys at once, as Arrow columns: those of ``keys``, without a loop.

MessagePack writes a number in the fewest bytes, and a string behind its length. Both
are matrices of bytes, of which each row uses a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.state.keys import MAX_KEY, key_ids, window_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["id_column", "sorted_places", "window_id_column"]

# First value, marker, bytes after the marker; the last that applies does.
_POSITIVE = [(128, 0xCC, 1), (1 << 8, 0xCD, 2), (1 << 16, 0xCE, 4), (1 << 32, 0xCF, 8)]
_NEGATIVE = [
    (-33, 0xD0, 1),
    (-(1 << 7) - 1, 0xD1, 2),
    (-(1 << 15) - 1, 0xD2, 4),
    (-(1 << 31) - 1, 0xD3, 8),
]
_SHORT_STRING = 32
_WORDS = 4


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
    encoded = [_encoded(column) for column in columns]
    if all(e is not None for e in encoded):
        two_bytes = groups.to_numpy().astype(">u2").view(np.uint8).reshape(-1, 2)
        prefixes = _used(two_bytes, np.full(len(groups), 2))
        ids = _joined(prefixes, *encoded)
        if pc.max(pc.binary_length(ids)).as_py() <= MAX_KEY + 2:
            return ids
    return pa.array(key_ids(groups.to_pylist(), values()), pa.binary())


def window_id_column(
    groups: pa.Array,
    ends_us: np.ndarray,
    columns: Sequence[pa.Array],
    values: Callable[[], Sequence[Sequence[Any]]],
) -> pa.BinaryArray:
    """Return the ids of keys in windows: group, end of the window, key.

    Args:
        groups: Their key groups.
        ends_us: When the window of each ends.
        columns: The other key columns; there may be none.
        values: Returns those as Python values, for keys that need it.
    """
    head = np.zeros((len(groups), 12), dtype=np.uint8)
    head[:, :2] = groups.to_numpy().astype(">u2").view(np.uint8).reshape(-1, 2)
    head[:, 2:4] = np.frombuffer(window_bytes(0)[:2], dtype=np.uint8)
    shifted = ends_us.astype(np.int64).view(np.uint64) + np.uint64(1 << 63)
    head[:, 4:] = shifted.astype(">u8").view(np.uint8).reshape(-1, 8)
    heads = _used(head, np.full(len(groups), head.shape[1]))
    if not columns:
        return heads
    plain = id_column(groups, columns, values)
    return _joined(heads, pc.binary_slice(plain, 2, 2 + MAX_KEY))


def _joined(*columns: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))


def _encoded(column: pa.Array) -> pa.BinaryArray | None:
    """Return the MessagePack bytes of values; None if it takes Python to tell."""
    if column.null_count:
        return None
    if pa.types.is_signed_integer(column.type):
        return _numbers(column.to_numpy().astype(np.int64))
    if pa.types.is_string(column.type):
        return _strings(column)
    return None


def _numbers(values: np.ndarray) -> pa.BinaryArray:
    matrix = np.zeros((len(values), 9), dtype=np.uint8)
    widths = np.ones(len(values), dtype=np.int64)
    # One byte holds both the small numbers and those just below zero.
    matrix[:, 0] = values.astype(np.uint8)
    places = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    for first, marker, width in [*_POSITIVE, *_NEGATIVE]:
        applies = values >= first if first > 0 else values <= first
        if applies.any():
            matrix[applies, 0] = marker
            matrix[applies, 1 : 1 + width] = places[applies, 8 - width :]
            widths[applies] = 1 + width
    return _used(matrix, widths)


def _strings(column: pa.StringArray) -> pa.BinaryArray | None:
    body = column.cast(pa.binary())
    lengths = pc.binary_length(body).to_numpy()
    if lengths.max(initial=0) > MAX_KEY:
        return None
    head = np.zeros((len(column), 2), dtype=np.uint8)
    is_short = lengths < _SHORT_STRING
    head[:, 0] = np.where(is_short, 0xA0 | lengths, 0xD9)
    head[:, 1] = lengths
    heads = _used(head, np.where(is_short, 1, 2))
    return _joined(heads, body)


def _used(matrix: np.ndarray, widths: np.ndarray) -> pa.BinaryArray:
    """Return the first bytes of each row of a matrix."""
    used = matrix[np.arange(matrix.shape[1]) < widths[:, None]]
    ends = np.concatenate([[0], np.cumsum(widths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(used)]
    return pa.Array.from_buffers(pa.binary(), len(widths), buffers)


def sorted_places(ids: pa.BinaryArray) -> np.ndarray:
    """Return where the ids are in their order, smallest first."""
    lengths = pc.binary_length(ids).to_numpy()
    width = 8 * -(-int(lengths.max(initial=1)) // 8)
    if width <= 8 * _WORDS:
        # As numbers of 8 bytes they are sorted in a third of the time. Padding makes
        # none of them equal unless one is another one with zeros behind it.
        matrix = np.zeros((len(ids), width), dtype=np.uint8)
        assert ids.offset == 0
        _, _, values = ids.buffers()
        bytes_of = np.frombuffer(values or b"", dtype=np.uint8)
        matrix[np.arange(width) < lengths[:, None]] = bytes_of[: lengths.sum()]
        words = matrix.view(">u8").astype(np.uint64)
        order = np.argsort(words[:, 0]) if width == 8 else np.lexsort(words.T[::-1])
        if _is_increasing(words[order]):
            return order
    places: np.ndarray = pc.sort_indices(ids).to_numpy()
    return places


def _is_increasing(words: np.ndarray) -> bool:
    return bool(np.all(np.any(words[1:] != words[:-1], axis=1)))
