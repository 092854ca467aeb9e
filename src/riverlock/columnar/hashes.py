"""Spark's ``xxhash64`` of many rows at once, by the column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from riverlock.core.types import Type

__all__ = ["can_hash", "hashes_of"]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SEED: Final = 42
# Unscaled decimals of so many digits fit into 64 bits, and are hashed as such.
_SHORT_DECIMAL: Final = 18
_DECIMAL_BYTES: Final = 16
_STRIPE: Final = 32
_Words = np.ndarray[Any, np.dtype[np.uint64]]


def can_hash(kind: Type) -> bool:
    """Tell whether values of a type can be hashed here."""
    return kind.kind in _NUMBERS or kind.kind in ("string", "binary", "decimal")


def hashes_of(
    columns: Iterable[tuple[pa.Array, Type]], size: int, seed: int = _SEED
) -> np.ndarray:
    """Return the hash of each row, as Spark computes it."""
    hashes = np.full(size, seed, dtype=np.int64).view(np.uint64)
    for column, kind in columns:
        found = _hashed(column, kind, hashes)
        # A null leaves the hash of the columns before it.
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            found = np.where(missing, hashes, found)
        hashes = found
    return hashes.view(np.int64)


def _hashed(column: pa.Array, kind: Type, seeds: _Words) -> _Words:
    if kind.kind in _NUMBERS:
        return _NUMBERS[kind.kind](column, seeds)
    if kind.kind in ("string", "binary"):
        return _of_bytes(column, seeds)
    assert kind.kind == "decimal", "can_hash has said no"
    raw = _unscaled(column)
    if kind.precision <= _SHORT_DECIMAL:
        return _of_longs(raw[:, :8].copy().view("<i8")[:, 0], seeds)
    return _of_big_numbers(raw, seeds)


def _rotl(words: _Words, by: int) -> _Words:
    found: _Words = (words << np.uint64(by)) | (words >> np.uint64(64 - by))
    return found


def _finish(h: _Words) -> _Words:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    found: _Words = h ^ (h >> np.uint64(32))
    return found


def _mix_int(h: _Words, words: _Words) -> _Words:
    return _rotl(h ^ (words * _P1), 23) * _P2 + _P3


def _mix_long(h: _Words, words: _Words) -> _Words:
    return _rotl(h ^ (_rotl(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _of_ints(values: np.ndarray, seeds: _Words) -> _Words:
    words = values.astype(np.int32).view(np.uint32).astype(np.uint64)
    return _finish(_mix_int(seeds + _P5 + np.uint64(4), words))


def _of_longs(values: np.ndarray, seeds: _Words) -> _Words:
    words = values.astype(np.int64).view(np.uint64)
    return _finish(_mix_long(seeds + _P5 + np.uint64(8), words))


def _of_floats(column: pa.Array, seeds: _Words) -> _Words:
    # -0.0 is hashed as 0.0, and every NaN as the same one.
    values = _numbers(column).astype(np.float32) + np.float32(0)
    values[np.isnan(values)] = np.nan
    return _of_ints(values.view(np.int32), seeds)


def _of_doubles(column: pa.Array, seeds: _Words) -> _Words:
    values = _numbers(column).astype(np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return _of_longs(values.view(np.int64), seeds)


def _numbers(column: pa.Array) -> np.ndarray:
    """Return a column of numbers; nulls have some value or other."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, column.type))
    found: np.ndarray = column.to_numpy(zero_copy_only=False)
    return found


def _integers(column: pa.Array, kind: pa.DataType) -> np.ndarray:
    return _numbers(column.cast(kind))


_NUMBERS: Final[dict[str, Callable[[pa.Array, _Words], _Words]]] = {
    "boolean": lambda c, s: _of_ints(_integers(c, pa.int8()), s),
    "byte": lambda c, s: _of_ints(_numbers(c), s),
    "short": lambda c, s: _of_ints(_numbers(c), s),
    "int": lambda c, s: _of_ints(_numbers(c), s),
    "long": lambda c, s: _of_longs(_numbers(c), s),
    "float": _of_floats,
    "double": _of_doubles,
    "date": lambda c, s: _of_ints(_integers(c, pa.int32()), s),
    "timestamp": lambda c, s: _of_longs(_integers(c, pa.int64()), s),
    "timestamp_ntz": lambda c, s: _of_longs(_integers(c, pa.int64()), s),
}


def _unscaled(column: pa.Array) -> np.ndarray:
    """Return the bytes of the numbers that decimals are stored as, lowest first."""
    wide = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    raw = np.frombuffer(wide.buffers()[1] or b"", dtype=np.uint8)
    found: np.ndarray = raw.reshape(-1, _DECIMAL_BYTES)[wide.offset :][: len(wide)]
    return found


def _of_big_numbers(raw: np.ndarray, seeds: _Words) -> _Words:
    """Hash numbers as few bytes as tell them and their sign, highest first."""
    high_first = np.ascontiguousarray(raw[:, ::-1])
    signs = high_first >> 7
    is_filler = high_first[:, :-1] == np.where(signs[:, :1] == 1, 0xFF, 0)
    is_filler &= signs[:, 1:] == signs[:, :1]
    skipped = np.logical_and.accumulate(is_filler, axis=1).sum(axis=1)
    starts = np.arange(len(raw)) * _DECIMAL_BYTES + skipped
    return _of_pieces(high_first.reshape(-1), starts, _DECIMAL_BYTES - skipped, seeds)


def _of_bytes(column: pa.Array, seeds: _Words) -> _Words:
    column = column.cast(pa.large_binary())
    buffers = column.buffers()
    offsets = np.frombuffer(buffers[1] or bytes(8), dtype=np.int64)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(buffers[2] or b"", dtype=np.uint8)
    return _of_pieces(data, offsets[:-1], np.diff(offsets), seeds)


def _of_pieces(
    data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, seeds: _Words
) -> _Words:
    """Hash pieces of bytes: all of one length at once."""
    found = np.empty_like(seeds)
    order = np.argsort(lengths, kind="stable")
    known, firsts = np.unique(lengths[order], return_index=True)
    bounds = [*firsts.tolist(), len(order)]
    for number, length in enumerate(known.tolist()):
        rows = order[bounds[number] : bounds[number + 1]]
        if length:
            windows = np.lib.stride_tricks.sliding_window_view(data, length)
            texts = windows[starts[rows]]
        else:
            texts = np.empty((len(rows), 0), dtype=np.uint8)
        found[rows] = _of_texts(texts, length, seeds[rows])
    return found


def _of_texts(texts: np.ndarray, length: int, seeds: _Words) -> _Words:
    """Hash texts of one length: a row of bytes each."""
    at = 0
    if length >= _STRIPE:
        h, at = _of_stripes(texts, length, seeds)
    else:
        h = seeds + _P5
    h = h + np.uint64(length)
    while at + 8 <= length:
        h = _mix_long(h, _word(texts, at, np.dtype("<u8")))
        at += 8
    if at + 4 <= length:
        h = _mix_int(h, _word(texts, at, np.dtype("<u4")))
        at += 4
    for place in range(at, length):
        h = _rotl(h ^ (texts[:, place].astype(np.uint64) * _P5), 11) * _P1
    return _finish(h)


def _word(texts: np.ndarray, at: int, kind: np.dtype[Any]) -> _Words:
    part = np.ascontiguousarray(texts[:, at : at + kind.itemsize])
    found: _Words = part.view(kind)[:, 0].astype(np.uint64)
    return found


def _of_stripes(texts: np.ndarray, length: int, seeds: _Words) -> tuple[_Words, int]:
    v = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    at, eight = 0, np.dtype("<u8")
    while at + _STRIPE <= length:
        for i in range(4):
            v[i] = _rotl(v[i] + _word(texts, at, eight) * _P2, 31) * _P1
            at += 8
    h = _rotl(v[0], 1) + _rotl(v[1], 7) + _rotl(v[2], 12) + _rotl(v[3], 18)
    for lane in v:
        h = (h ^ (_rotl(lane * _P2, 31) * _P1)) * _P1 + _P4
    return h, at
