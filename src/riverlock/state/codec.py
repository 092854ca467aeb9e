"""Typed values to bytes and to Arrow, so that a warm copy equals a rebuilt one.

Working copies hold MessagePack, snapshots hold typed Parquet columns. Whatever user
code assigns is first *normalised* to what a reader of the Parquet file would get, or
refused: otherwise a flow would behave differently after a crash.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from riverlock.core.types import INTEGERS, Type

__all__ = ["NONE", "Codec", "codec_of", "encode"]

encode = msgspec.msgpack.Encoder().encode
NONE = type(None)
Normaliser = Callable[[Any], Any]

_SINGLE = struct.Struct("<f")
# Types whose exact Python type needs no further look (integers are range-checked
# by Arrow when the column is built).
_PLAIN: dict[str, type] = {
    "boolean": bool,
    "long": int,
    "double": float,
    "string": str,
    "binary": bytes,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type are checked, stored and exported."""

    type: Type
    python: Any  # what msgspec decodes to
    plain: type | None  # values of exactly this type are normal already
    normalise: Normaliser  # raises TypeError, ValueError
    to_arrow: Normaliser | None  # None: Arrow takes the value as it is

    @property
    def is_mutable(self) -> bool:
        """Whether a value can be changed in place."""
        return self.type.kind in ("array", "map", "struct")

    def decoder(self) -> Callable[[bytes], Any]:
        """Return a function from stored bytes to a value."""
        return msgspec.msgpack.Decoder(self.python | None).decode

    def from_arrow(self, values: list[Any]) -> list[Any]:
        """Return values read from a snapshot as user code would see them."""
        if self.plain is not None:
            return values
        return [None if v is None else self.normalise(v) for v in values]


@lru_cache(maxsize=512)
def _codec(t: Type, python: type | None) -> Codec:  # noqa: ARG001 - part of the key
    kind = t.kind
    if kind == "array":
        return _array(t)
    if kind == "map":
        return _map(t)
    if kind == "struct":
        return _struct(t)
    python_type, normalise = _SIMPLE[kind]
    if kind in INTEGERS:
        normalise = _integer(INTEGERS[kind])
    if kind == "decimal":
        normalise = _decimal(t)
    return Codec(t, python_type, _PLAIN.get(kind), normalise, None)


def codec_of(t: Type) -> Codec:
    """Return the codec of a type; a struct's dataclass makes a codec of its own."""
    return _codec(t, t.python)


def _refuse(expected: str, value: object) -> TypeError:
    return TypeError(f"expected {expected}, found {type(value).__name__}")


def _exact(expected: type, name: str) -> Normaliser:
    def normalise(value: Any) -> Any:
        if isinstance(value, expected):
            return value
        raise _refuse(name, value)

    return normalise


def _integer(bits: int) -> Normaliser:
    limit = 1 << (bits - 1)

    def normalise(value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise _refuse(f"a whole number of {bits} bits", value)
        number = int(value)
        if not -limit <= number < limit:
            message = f"{number} does not fit in {bits} bits"
            raise ValueError(message)
        return number

    return normalise


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        if hasattr(value, "dtype"):  # a NumPy scalar
            return float(value)
        raise _refuse("a number", value)
    return float(value)


def _single(value: Any) -> float:
    return float(_SINGLE.unpack(_SINGLE.pack(_double(value)))[0])


def _timestamp(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _refuse("a datetime", value)
    if value.tzinfo is None:
        message = "a timestamp needs a time zone: write datetime.now(UTC) or ctx.now"
        raise ValueError(message)
    return value.astimezone(UTC)


def _naive(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise _refuse("a datetime without time zone", value)
    return value


def _date(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _refuse("a date", value)
    return value


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _refuse("bytes", value)


def _decimal(t: Type) -> Normaliser:
    unit = Decimal(1).scaleb(-t.scale)

    def normalise(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise _refuse("a Decimal", value)
        exact = Decimal(value)
        scaled = exact.quantize(unit)
        if scaled != exact or len(scaled.as_tuple().digits) > t.precision:
            message = f"{value} does not fit decimal({t.precision},{t.scale})"
            raise ValueError(message)
        return scaled

    return normalise


_SIMPLE: dict[str, tuple[Any, Normaliser]] = {
    "boolean": (bool, _exact(bool, "True or False")),
    "byte": (int, _integer(8)),
    "short": (int, _integer(16)),
    "int": (int, _integer(32)),
    "long": (int, _integer(64)),
    "float": (float, _single),
    "double": (float, _double),
    "string": (str, _exact(str, "text")),
    "binary": (bytes, _bytes),
    "date": (date, _date),
    "timestamp": (datetime, _timestamp),
    "timestamp_ntz": (datetime, _naive),
    "decimal": (Decimal, _exact(Decimal, "a Decimal")),  # refined per precision
}


def _optional(codec: Codec) -> Normaliser:
    normalise = codec.normalise
    return lambda v: None if v is None else normalise(v)


def _array(t: Type) -> Codec:
    assert t.element
    inner = codec_of(t.element)
    each, out = _optional(inner), inner.to_arrow

    def normalise(value: Any) -> list[Any]:
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            raise _refuse("a list", value)
        return [each(v) for v in value]

    def to_arrow(value: Any) -> list[Any]:
        assert out
        return [None if v is None else out(v) for v in value]

    return Codec(
        t, list[inner.python | None], None, normalise, to_arrow if out else None
    )


def _map(t: Type) -> Codec:
    assert t.key
    assert t.element
    key, inner = codec_of(t.key), codec_of(t.element)
    each, out = _optional(inner), inner.to_arrow

    def normalise(value: Any) -> dict[Any, Any]:
        if isinstance(value, list):  # how Arrow gives a map back
            value = dict(value)
        if not isinstance(value, dict):
            raise _refuse("a dict", value)
        return {key.normalise(k): each(v) for k, v in value.items()}

    def to_arrow(value: Any) -> list[tuple[Any, Any]]:
        if out is None:
            return list(value.items())
        return [(k, None if v is None else out(v)) for k, v in value.items()]

    return Codec(t, dict[key.python, inner.python | None], None, normalise, to_arrow)


def _struct(t: Type) -> Codec:
    codecs = [codec_of(f.type) for f in t.fields]
    names = [f.name for f in t.fields]
    each = [_optional(c) for c in codecs]
    made = t.python or msgspec.defstruct(
        "Struct",
        [(n, c.python | None, None) for n, c in zip(names, codecs, strict=True)],
    )

    def normalise(value: Any) -> Any:
        if isinstance(value, dict):
            values = [value.get(n) for n in names]
        elif isinstance(value, tuple | list) and len(value) == len(names):
            values = list(value)
        elif all(hasattr(value, n) for n in names):
            values = [getattr(value, n) for n in names]
        else:
            raise _refuse(t.ddl, value)
        return made(*(e(v) for e, v in zip(each, values, strict=True)))

    outs = [c.to_arrow for c in codecs]

    def to_arrow(value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            value = normalise(value)
        result = {}
        for name, out in zip(names, outs, strict=True):
            v = getattr(value, name)
            result[name] = v if v is None or out is None else out(v)
        return result

    return Codec(t, made, None, normalise, to_arrow)
