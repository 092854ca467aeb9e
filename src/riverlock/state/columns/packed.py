"""MessagePack of many rows at once: the bytes of ``codec.encode``, without a loop.

A number takes the fewest bytes that hold it, and a string stands behind its length. So
a column is a matrix of bytes of which each row uses a part, and a whole row is those of
its columns beside each other. For types that are not here, the caller has its loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.core.types import Type

__all__ = [
    "PACKED_KINDS",
    "Part",
    "bytes_of",
    "head_of",
    "joined",
    "packed",
    "rows",
    "unpacked",
]

# First value, marker, bytes after the marker; the last that applies does.
_POSITIVE = [(128, 0xCC, 1), (1 << 8, 0xCD, 2), (1 << 16, 0xCE, 4), (1 << 32, 0xCF, 8)]
_NEGATIVE = [
    (-33, 0xD0, 1),
    (-(1 << 7) - 1, 0xD1, 2),
    (-(1 << 15) - 1, 0xD2, 4),
    (-(1 << 31) - 1, 0xD3, 8),
]
_NULL, _DOUBLE = 0xC0, 0xCB
# Where numbers that have more than one byte are behind their marker.
_INTEGERS: Final = {
    **{marker: f">u{size}" for _, marker, size in _POSITIVE},
    **{marker: f">i{size}" for _, marker, size in _NEGATIVE},
}
_LENGTHS: Final = {0xD9: ">u1", 0xDA: ">u2", 0xDB: ">u4"}
_BINARY_LENGTHS: Final = {0xC4: ">u1", 0xC5: ">u2", 0xC6: ">u4"}
_SHORT_STRING, _LONG_STRING = 32, 255
_FEW_COLUMNS = 15

# Bytes, and how many of them each row uses; or a column that is bytes already.
Part: TypeAlias = tuple[np.ndarray, np.ndarray] | pa.BinaryArray


def packed(column: pa.Array) -> list[Part] | None:
    """Return the MessagePack bytes of a column; None if it takes Python to tell."""
    kind = column.type
    if column.null_count == len(column):
        return [head_of(np.array([_NULL], dtype=np.uint8), len(column))]
    if pa.types.is_signed_integer(kind):
        return [_with_nulls(column, _integers)]
    if pa.types.is_float64(kind):
        return [_with_nulls(column, _doubles)]
    if pa.types.is_string(kind) and not column.null_count:
        return _strings(column)
    return None


def head_of(raw: np.ndarray, size: int) -> Part:
    """Return the same bytes in front of every row."""
    matrix = np.broadcast_to(raw, (size, len(raw)))
    return matrix, np.full(size, len(raw))


def joined(parts: Sequence[Part]) -> pa.BinaryArray:
    """Return parts that lie beside each other as one column."""
    columns: list[pa.BinaryArray] = []
    beside: list[tuple[np.ndarray, np.ndarray]] = []
    for part in [*parts, None]:
        if isinstance(part, tuple):
            beside.append(part)
            continue
        if beside:
            columns.append(_used(beside))
            beside = []
        if part is not None:
            columns.append(part)
    if len(columns) == 1:
        return columns[0]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))


def rows(columns: Sequence[pa.Array]) -> pa.BinaryArray | None:
    """Return rows of values as ``encode`` makes them; None if it takes the loop."""
    if not columns or len(columns) > _FEW_COLUMNS:
        return None
    head = np.array([0x90 | len(columns)], dtype=np.uint8)
    parts = [head_of(head, len(columns[0]))]
    for column in columns:
        found = packed(column)
        if found is None:
            return None
        parts += found
    return joined(parts)


def _with_nulls(
    column: pa.Array, pack: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> Part:
    matrix, widths = pack(column.fill_null(0).to_numpy())
    if column.null_count:
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        matrix[is_null, 0] = _NULL
        widths[is_null] = 1
    return matrix, widths


def _integers(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = numbers.astype(np.int64)
    widths = np.ones(len(values), dtype=np.int64)
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    sizes = [
        (first, marker, size)
        for first, marker, size in [*_POSITIVE, *_NEGATIVE]
        if (high >= first if first > 0 else low <= first)
    ]
    matrix = np.zeros((len(values), 1 + max([0, *(s for _, _, s in sizes)])), np.uint8)
    # One byte holds both the small numbers and those just below zero.
    matrix[:, 0] = values.astype(np.uint8)
    places = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    for first, marker, size in sizes:
        applies = values >= first if first > 0 else values <= first
        matrix[applies, 0] = marker
        matrix[applies, 1 : 1 + size] = places[applies, 8 - size :]
        widths[applies] = 1 + size
    return matrix, widths


def _doubles(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    matrix = np.empty((len(numbers), 9), dtype=np.uint8)
    matrix[:, 0] = _DOUBLE
    matrix[:, 1:] = numbers.astype(">f8").view(np.uint8).reshape(-1, 8)
    return matrix, np.full(len(numbers), 9)


def _strings(column: pa.StringArray) -> list[Part] | None:
    body = column.cast(pa.binary())
    lengths = pc.binary_length(body).to_numpy()
    if lengths.max(initial=0) > _LONG_STRING:
        return None
    head = np.zeros((len(column), 2), dtype=np.uint8)
    is_short = lengths < _SHORT_STRING
    head[:, 0] = np.where(is_short, 0xA0 | lengths, 0xD9)
    head[:, 1] = lengths
    return [(head, np.where(is_short, 1, 2)), body]


def _used(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> pa.BinaryArray:
    """Return what rows use of matrices that lie beside each other."""
    matrix = np.concatenate([m for m, _ in parts], axis=1)
    is_used = np.concatenate(
        [np.arange(m.shape[1]) < widths[:, None] for m, widths in parts], axis=1
    )
    ends = np.zeros(len(matrix) + 1, dtype=np.int32)
    np.cumsum(sum(widths for _, widths in parts), out=ends[1:])
    used = matrix[is_used] if not is_used.all() else matrix.reshape(-1)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(used)]
    return pa.Array.from_buffers(pa.binary(), len(matrix), buffers)


# And back


def bytes_of(column: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Return all bytes of a column, and where each row begins and the last ends."""
    _, offsets, values = column.buffers()
    size = len(column) + 1
    if offsets is None:
        return np.zeros(0, dtype=np.uint8), np.zeros(size, dtype=np.int64)
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset :][:size]
    return np.frombuffer(values or b"", dtype=np.uint8), ends.astype(np.int64)


def unpacked(
    column: pa.BinaryArray, kinds: Sequence[Type], *, skip: int, is_row: bool = False
) -> list[pa.Array] | None:
    """Return the values that rows of MessagePack hold.

    Args:
        column: The rows; of one that is null or empty, all values are null.
        kinds: The types of the values in a row.
        skip: How many bytes stand before the first value.
        is_row: Whether the last of these says how many values there are.

    Returns:
        A column per type; None if it takes Python to tell.
    """
    if any(kind.kind not in _READERS for kind in kinds):
        return None
    data, offsets = bytes_of(column)
    is_there = offsets[1:] > offsets[:-1]
    if column.null_count:
        is_there &= column.is_valid().to_numpy(zero_copy_only=False)
    here = np.flatnonzero(is_there)
    at, ends = offsets[:-1][here] + skip, offsets[1:][here]
    if is_row and np.any(data[at - 1] != 0x90 | len(kinds)):
        return None
    found = []
    for kind in kinds:
        read = _READERS[kind.kind](data, at, kind) if np.all(at < ends) else None
        if read is None:
            return None
        found.append(read[0])
        at = read[1]
    if np.any(at != ends):
        return None
    if len(here) == len(column):
        return found
    places = np.zeros(len(column), dtype=np.int64)
    places[here] = np.arange(len(here))
    indices = pa.array(places, mask=~is_there)
    return [values.take(indices) for values in found]


_Read = tuple[pa.Array, np.ndarray]


def _behind(data: np.ndarray, at: np.ndarray, number: str) -> np.ndarray:
    """Return the numbers of some bytes that follow markers."""
    size = np.dtype(number).itemsize
    raw = data[at[:, None] + np.arange(1, size + 1)]
    return np.ascontiguousarray(raw).view(number).ravel()


def _read_integers(data: np.ndarray, at: np.ndarray, kind: Type) -> _Read | None:
    marks = data[at]
    values = marks.view(np.int8).astype(np.int64)
    sizes = np.ones(len(at), dtype=np.int64)
    is_null = marks == _NULL
    for mark in np.unique(marks[(marks >= 0x80) & (marks < 0xE0) & ~is_null]).tolist():
        if mark not in _INTEGERS:
            return None
        mine = np.flatnonzero(marks == mark)
        values[mine] = _behind(data, at[mine], _INTEGERS[mark]).astype(np.int64)
        sizes[mine] += np.dtype(_INTEGERS[mark]).itemsize
    return pa.array(values, mask=is_null).cast(kind.to_arrow()), at + sizes


def _read_doubles(data: np.ndarray, at: np.ndarray, _: Type) -> _Read | None:
    marks = data[at]
    is_null = marks == _NULL
    if np.any(~is_null & (marks != _DOUBLE)):
        return None
    values = np.zeros(len(at))
    values[~is_null] = _behind(data, at[~is_null], ">f8")
    return pa.array(values, mask=is_null), at + np.where(is_null, 1, 9)


def _read_bytes(
    data: np.ndarray, at: np.ndarray, kind: Type, lengths_of: dict[int, str]
) -> _Read | None:
    marks = data[at]
    is_null = marks == _NULL
    heads = np.ones(len(at), dtype=np.int64)
    lengths = np.zeros(len(at), dtype=np.int64)
    is_short = np.zeros(len(at), dtype=bool)
    if kind.kind == "string":
        is_short = (marks >= 0xA0) & (marks < 0xC0)
        lengths[is_short] = marks[is_short] & 0x1F
    for mark in np.unique(marks[~is_null & ~is_short]).tolist():
        if mark not in lengths_of:
            return None
        mine = np.flatnonzero(marks == mark)
        lengths[mine] = _behind(data, at[mine], lengths_of[mark])
        heads[mine] += np.dtype(lengths_of[mark]).itemsize
    begins, ends = at + heads, np.zeros(len(at) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    if ends[-1] >= 1 << 31:
        return None
    each = np.repeat(begins - ends[:-1], lengths) + np.arange(ends[-1])
    # Arrow wants a set bit where there is a value.
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    buffers = [validity, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data[each])]
    made = pa.Array.from_buffers(kind.to_arrow(), len(at), buffers)
    return made, begins + lengths


def _read_strings(data: np.ndarray, at: np.ndarray, kind: Type) -> _Read | None:
    return _read_bytes(data, at, kind, _LENGTHS)


def _read_binaries(data: np.ndarray, at: np.ndarray, kind: Type) -> _Read | None:
    return _read_bytes(data, at, kind, _BINARY_LENGTHS)


_READERS: Final[dict[str, Callable[[np.ndarray, np.ndarray, Type], _Read | None]]] = {
    **dict.fromkeys(("byte", "short", "int", "long"), _read_integers),
    "double": _read_doubles,
    "string": _read_strings,
    "binary": _read_binaries,
}
# Types whose columns need no loop: state has them as Arrow does.
PACKED_KINDS: Final = frozenset(_READERS)
