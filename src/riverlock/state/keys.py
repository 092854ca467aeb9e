"""Keys: the hash that places them and the bytes that name them.

The key group of a key is Spark's ``xxhash64`` (seed 42) of the key columns, modulo the
number of groups. Spark computes it for streams; the same function in Python serves
look-ups, harness and tests. An *entry id* names one stored entry: it sorts by key
group, then key, so that all entries of a key lie together (format §5.1).
"""

from __future__ import annotations

import struct
from decimal import Context
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import day_of, micros, naive_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from decimal import Decimal

    import numpy as np

    from riverlock.core.types import Schema, Type

__all__ = [
    "BROADCAST",
    "MAX_KEY",
    "MAX_ORDINAL",
    "check_keys",
    "group_id",
    "group_range",
    "has_keys",
    "key_bytes",
    "key_group",
    "key_ids",
    "list_slot",
    "map_slot",
    "ordinal_bytes",
    "ordinal_of",
    "ordinal_span",
    "owner_of",
    "timer_slot",
]

_Groups = TypeVar("_Groups", int, "np.ndarray[Any, np.dtype[np.int64]]")

_encode = msgspec.msgpack.Encoder().encode
_EXACT = Context(prec=80)
_GROUP = struct.Struct(">H")
_INDEX = struct.Struct(">Q")
# 0xC1 never begins a MessagePack value, so these cannot meet an encoded key.
_NO_KEY = b"\xc1\x00"
_HASHED = b"\xc1\x01"
_ORDERED = b"\xc1\x02"
# What follows it has 64 bits, too.
MAX_ORDINAL = (1 << 63) - 2
# With two bytes of group, a name of 64 and a map key of 150, ids stay below 511.
MAX_KEY = 255
_MAX_MAP_KEY = 150
BROADCAST = b"\xff\xff" + _NO_KEY

# Slots after the key; the row of values has none and so sorts first.
VALUE, LIST, MAP, TIMER = b"\x01", b"\x02", b"\x03", b"\xff"
_SIGN = 1 << 63


def key_bytes(values: Iterable[Any]) -> bytes:
    """Return the canonical bytes of a key; long keys are named by their hash."""
    raw = b"".join(map(_encode, values))
    return raw if len(raw) <= MAX_KEY else _hashed(raw)


def key_ids(groups: Sequence[int], columns: Sequence[Sequence[Any]]) -> list[bytes]:
    """Return the ids of many keys, given column by column."""
    if len(columns) == 1:
        raws = list(map(_encode, columns[0]))
    else:
        raws = [b"".join(map(_encode, key)) for key in zip(*columns, strict=True)]
    if max(map(len, raws)) > MAX_KEY:
        raws = [r if len(r) <= MAX_KEY else _hashed(r) for r in raws]
    pack = _GROUP.pack
    return [pack(g) + r for g, r in zip(groups, raws, strict=True)]


def _hashed(raw: bytes) -> bytes:
    return _HASHED + blake2b(raw, digest_size=32).digest()


def group_id(group: int) -> bytes:
    """Return the id under which group-scoped entries of a key group live."""
    return _GROUP.pack(group) + _NO_KEY


def with_group(group: int, key: bytes) -> bytes:
    """Return the id of a key: its group, then its bytes."""
    return _GROUP.pack(group) + key


def value_slot(name: str) -> bytes:
    """Return the slot of a value that has an entry of its own."""
    return VALUE + _encode(name)


def list_slot(name: str) -> bytes:
    """Return the prefix of a list's elements; ``index_bytes`` follows."""
    return LIST + _encode(name)


def index_bytes(index: int) -> bytes:
    """Return an index so that byte order is number order."""
    return _INDEX.pack(index)


def index_of(entry_id: bytes) -> int:
    """Return the index at the end of a list element's id."""
    return int.from_bytes(entry_id[-8:], "big")


def map_slot(name: str) -> bytes:
    """Return the prefix of a map's entries; ``map_key_bytes`` follows."""
    return MAP + _encode(name)


def map_key_bytes(key: Any) -> bytes:
    """Return the bytes of a map key; long ones are named by their hash."""
    raw: bytes = _encode(key)
    return raw if len(raw) <= _MAX_MAP_KEY else _hashed(raw)


def timer_slot(kind: int, at_us: int) -> bytes:
    """Return the slot of a timer; kind 0 is event time, 1 processing time."""
    return TIMER + bytes((kind,)) + time_bytes(at_us)


def time_bytes(at_us: int) -> bytes:
    """Return an instant so that byte order is time order, also before 1970."""
    return _INDEX.pack(at_us + _SIGN)


def ordinal_bytes(ordinal: int) -> bytes:
    """Return the bytes before a key in ids that a number orders."""
    return _ORDERED + time_bytes(ordinal)


def ordinal_span(after: int | None, until: int) -> tuple[bytes, bytes]:
    """Return between which bytes, after the group, ids of a span of numbers lie."""
    low = _ORDERED if after is None else ordinal_bytes(after + 1)
    return low, ordinal_bytes(until + 1)


def ordinal_of(entry_id: bytes) -> tuple[int, bytes]:
    """Return the number that orders an id, and the bytes of the key."""
    return time_of(entry_id[4:12]), entry_id[12:]


def is_hashed(key: bytes) -> bool:
    """Whether the key cannot be read from its bytes."""
    return key.startswith(_HASHED)


def time_of(raw: bytes) -> int:
    """Return the instant of ``time_bytes``."""
    return int.from_bytes(raw, "big") - _SIGN


def group_range(task: int, parallelism: int, key_groups: int) -> tuple[int, int]:
    """Return the key groups of a task: first inclusive, last exclusive.

    >>> [group_range(t, 3, 8) for t in range(3)]
    [(0, 3), (3, 6), (6, 8)]
    """
    first = -(-task * key_groups // parallelism)
    end = -(-(task + 1) * key_groups // parallelism)
    return first, end


def owner_of(group: _Groups, parallelism: int, key_groups: int) -> _Groups:
    """Return the task that owns a key group; of an array of groups, an array.

    >>> [owner_of(g, 3, 8) for g in range(8)]
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    return group * parallelism // key_groups


def check_keys(schema: Schema) -> None:
    """Refuse key columns that have no stable bytes.

    Raises:
        InvalidFlowError: A key column is an array, a map or a struct.
    """
    for f in schema.fields:
        if f.type.kind not in _HASHES:
            raise InvalidFlowError(
                f"key column {f.name!r}",
                expected="a simple type",
                found=f.type.ddl,
                hint="key by its fields, or by a text made of it",
            )


def has_keys(schema: Schema) -> bool:
    """Tell whether all columns are such that ``check_keys`` lets pass."""
    return all(f.type.kind in _HASHES for f in schema.fields)


def key_group(values: Iterable[Any], schema: Schema, key_groups: int) -> int:
    """Return the key group that Spark computes for the same key."""
    return xxhash64(values, schema) % key_groups


def xxhash64(values: Iterable[Any], schema: Schema) -> int:
    """Return Spark's ``xxhash64(...)`` of typed values as a signed number."""
    seed = 42
    for value, f in zip(values, schema.fields, strict=True):
        if value is not None:
            seed = _HASHES[f.type.kind](value, f.type, seed)
    return seed - (1 << 64) if seed >= _SIGN else seed


_M = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (64 - r))) & _M


def _finish(h: int) -> int:
    h = ((h ^ (h >> 33)) * _P2) & _M
    h = ((h ^ (h >> 29)) * _P3) & _M
    return h ^ (h >> 32)


def _hash_int(value: int, seed: int) -> int:
    h = (seed + _P5 + 4) & _M
    h ^= ((value & 0xFFFFFFFF) * _P1) & _M
    return _finish((_rotl(h, 23) * _P2 + _P3) & _M)


def _hash_long(value: int, seed: int) -> int:
    h = (seed + _P5 + 8) & _M
    return _finish(_mix_long(h, value & _M))


def _mix_long(h: int, lane: int) -> int:
    h ^= (_rotl((lane * _P2) & _M, 31) * _P1) & _M
    return (_rotl(h, 27) * _P1 + _P4) & _M


def _hash_bytes(data: bytes, seed: int) -> int:
    n, at = len(data), 0
    if n >= 32:
        h, at = _hash_stripes(data, seed)
    else:
        h = (seed + _P5) & _M
    h = (h + n) & _M
    while at + 8 <= n:
        h = _mix_long(h, int.from_bytes(data[at : at + 8], "little"))
        at += 8
    if at + 4 <= n:
        h ^= (int.from_bytes(data[at : at + 4], "little") * _P1) & _M
        h = (_rotl(h, 23) * _P2 + _P3) & _M
        at += 4
    for byte in data[at:]:
        h ^= (byte * _P5) & _M
        h = (_rotl(h, 11) * _P1) & _M
    return _finish(h)


def _hash_stripes(data: bytes, seed: int) -> tuple[int, int]:
    v = [(seed + _P1 + _P2) & _M, (seed + _P2) & _M, seed, (seed - _P1) & _M]
    at = 0
    while at + 32 <= len(data):
        for i in range(4):
            lane = int.from_bytes(data[at : at + 8], "little")
            v[i] = (_rotl((v[i] + lane * _P2) & _M, 31) * _P1) & _M
            at += 8
    h = (_rotl(v[0], 1) + _rotl(v[1], 7) + _rotl(v[2], 12) + _rotl(v[3], 18)) & _M
    for lane in v:
        h ^= (_rotl((lane * _P2) & _M, 31) * _P1) & _M
        h = (h * _P1 + _P4) & _M
    return h, at


def _of_float(value: float, seed: int, *, wide: bool) -> int:
    value = 0.0 if value == 0 else value  # Spark hashes -0.0 as 0.0
    if value != value:
        bits = 0x7FF8000000000000 if wide else 0x7FC00000
    else:
        bits = int.from_bytes(struct.pack(">d" if wide else ">f", value), "big")
    return _hash_long(bits, seed) if wide else _hash_int(bits, seed)


def _of_decimal(value: Decimal, t: Type, seed: int) -> int:
    unscaled = int(value.scaleb(t.scale, context=_EXACT))
    if t.precision <= 18:
        return _hash_long(unscaled, seed)
    width = (
        (unscaled.bit_length() // 8) + 1
        if unscaled >= 0
        else (((unscaled + 1).bit_length() // 8) + 1)
    )
    return _hash_bytes(unscaled.to_bytes(width, "big", signed=True), seed)


_HASHES: dict[str, Callable[[Any, Type, int], int]] = {
    "boolean": lambda v, _, s: _hash_int(int(v), s),
    "byte": lambda v, _, s: _hash_int(v, s),
    "short": lambda v, _, s: _hash_int(v, s),
    "int": lambda v, _, s: _hash_int(v, s),
    "long": lambda v, _, s: _hash_long(v, s),
    "float": lambda v, _, s: _of_float(v, s, wide=False),
    "double": lambda v, _, s: _of_float(v, s, wide=True),
    "string": lambda v, _, s: _hash_bytes(v.encode(), s),
    "binary": lambda v, _, s: _hash_bytes(v, s),
    "date": lambda v, _, s: _hash_int(day_of(v), s),
    "timestamp": lambda v, _, s: _hash_long(micros(v), s),
    "timestamp_ntz": lambda v, _, s: _hash_long(naive_micros(v), s),
    "decimal": _of_decimal,
}
