"""Typed values to bytes and to Arrow, so that a warm copy equals a rebuilt one.

Working copies hold MessagePack, snapshots hold typed Parquet columns. Whatever user
code assigns is first *normalised* to what a reader of the Parquet file would get, or
refused: otherwise a flow would behave differently after a crash.
"""

from __future__ import annotations

import dataclasses
import keyword
import struct
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from functools import lru_cache, partial
from typing import Any

import msgspec

from riverlock.core.times import from_micros, micros
from riverlock.core.values.known_types import known
from riverlock.core.values.record import Record
from riverlock.state.normal import Check, check_of, of_lists, of_maps, of_objects

if typing.TYPE_CHECKING:
    from riverlock.core.types import Type

__all__ = ["NONE", "Codec", "codec_of", "encode"]

encode = msgspec.msgpack.Encoder().encode
NONE = type(None)
Normaliser = Callable[[Any], Any]

# So many values are looked at one by one, if not all are normal.
_FEW = 4
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_SINGLE = struct.Struct("<f")
# Wide enough for any decimal(38, …); the caller's context must not round.
_EXACT = Context(prec=80)
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
    plain: Any  # None, or a class: values of exactly this type are normal already
    normalise: Normaliser  # raises TypeError, ValueError
    to_arrow: Normaliser | None  # None: Arrow takes the value as it is
    are_normal: Check  # of many values: whether all are surely as they are stored

    def is_normal(self, value: Any) -> bool:
        """Tell quickly whether a value is stored as it is; False means: perhaps not."""
        plain = self.plain
        if type(value) is not plain:
            return False
        if plain is int:
            return bool(_LOWEST <= value <= _HIGHEST)
        return plain is not str or str.isascii(value)

    @property
    def is_mutable(self) -> bool:
        """Whether a value can be changed in place."""
        return self.type.kind in ("array", "map", "struct")

    def decoder(self) -> Callable[[bytes], Any]:
        """Return a function from stored bytes to a value."""
        decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(
            known(optional(self.python))
        ).decode
        return decode

    def from_arrow(self, values: list[Any]) -> list[Any]:
        """Return values read from a snapshot as user code would see them."""
        return values if self.plain else [self.checked(v) for v in values]

    def checked(self, value: Any) -> Any:
        """Return a value as it is stored; None stays None."""
        return None if value is None else self.normalise(value)

    def copies(self, values: list[Any]) -> list[Any]:
        """Return values as they are stored, in copies that share nothing with them.

        Most of many values are normal: those are found by halving.

        Raises:
            TypeError, ValueError, ArithmeticError: One is not of the type.
        """
        if self.are_normal(values):
            return self._copied(values)
        if len(values) < _FEW:
            return [self.checked(v) for v in values]
        middle = len(values) // 2
        return [*self.copies(values[:middle]), *self.copies(values[middle:])]

    def _copied(self, values: list[Any]) -> list[Any]:
        """Copy normal values by way of their bytes, as another epoch would."""
        if not self.is_mutable:
            return values.copy()
        many = types.GenericAlias(list, (optional(self.python),))
        copies: list[Any] = _decoder(many)(encode(values))
        return copies


@lru_cache(maxsize=512)
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(known(kind)).decode
    return decode


def optional(kind: Any) -> Any:
    """Return the annotation of a kind that may be None."""
    return kind | None


@lru_cache(maxsize=512)
def _codec(t: Type, classes: tuple[Any, ...]) -> Codec:
    # Types compare without their dataclasses; the second argument tells them apart.
    del classes
    if t.kind in _NESTED:
        return _NESTED[t.kind](t)
    python_type, normalise = _SIMPLE[t.kind]
    if t.kind == "decimal":
        normalise = _decimal(t)
    return Codec(t, python_type, _PLAIN.get(t.kind), normalise, None, check_of(t))


def codec_of(t: Type) -> Codec:
    """Return the codec of a type; a struct's dataclass makes a codec of its own."""
    return _codec(t, _classes(t))


def _classes(t: Type) -> tuple[Any, ...]:
    """Return the dataclasses of a type and of everything inside it."""
    inner = (t.key, t.element, *(f.type for f in t.fields))
    return (t.python, *(None if i is None else _classes(i) for i in inner))


def _refuse(expected: str, value: object) -> TypeError:
    return TypeError(f"{expected}, not {type(value).__name__}")


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if getattr(getattr(value, "dtype", None), "kind", "") == "b":  # NumPy's
        return bool(value)
    raise _refuse("True or False", value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _refuse("text", value)
    if not value.isascii():
        value.encode()  # lone surrogates are no text: raises UnicodeEncodeError
    return str.__str__(value)  # of a subclass, its plain content


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
    if type(value) is not datetime:  # pandas has a subclass with nanoseconds
        return from_micros(micros(value))
    return value.astimezone(UTC).replace(fold=0)


def _naive(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise _refuse("a datetime without time zone", value)
    if type(value) is not datetime:
        return from_micros(micros(value.replace(tzinfo=UTC))).replace(tzinfo=None)
    return value.replace(fold=0)  # which of two hours it is cannot be stored


def _date(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _refuse("a date", value)
    return value if type(value) is date else date(value.year, value.month, value.day)


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
        scaled = exact.quantize(unit, context=_EXACT) if exact.is_finite() else exact
        if (
            not exact.is_finite()
            or scaled != exact
            or len(scaled.as_tuple().digits) > t.precision
        ):
            message = f"{value} does not fit decimal({t.precision},{t.scale})"
            raise ValueError(message)
        return scaled if scaled else abs(scaled)  # Parquet has no negative zero

    return normalise


def _refined(value: Any) -> Any:
    raise AssertionError(value)  # decimals are checked by their precision


_SIMPLE: dict[str, tuple[Any, Normaliser]] = {
    "boolean": (bool, _boolean),
    "byte": (int, _integer(8)),
    "short": (int, _integer(16)),
    "int": (int, _integer(32)),
    "long": (int, _integer(64)),
    "float": (float, _single),
    "double": (float, _double),
    "string": (str, _text),
    "binary": (bytes, _bytes),
    "date": (date, _date),
    "timestamp": (datetime, _timestamp),
    "timestamp_ntz": (datetime, _naive),
    "decimal": (Decimal, _refined),
}


def _array(t: Type) -> Codec:
    assert t.element
    inner = codec_of(t.element)
    out = inner.to_arrow

    def normalise(value: Any) -> list[Any]:
        if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
            raise _refuse("a list", value)
        return inner.copies(value if type(value) is list else list(value))

    def to_arrow(value: Any) -> list[Any]:
        assert out
        return [None if v is None else out(v) for v in value]

    python = types.GenericAlias(list, (optional(inner.python),))
    check = of_lists(inner.are_normal)
    return Codec(t, python, None, normalise, to_arrow if out else None, check)


def _map(t: Type) -> Codec:
    assert t.key
    assert t.element
    key, inner = codec_of(t.key), codec_of(t.element)
    out = inner.to_arrow

    def normalise(value: Any) -> dict[Any, Any]:
        if isinstance(value, list):  # how Arrow gives a map back
            value = dict(value)
        if not isinstance(value, Mapping):
            raise _refuse("a dict", value)
        keys = [*value]
        if key.are_normal(keys) and not any(k is None for k in keys):
            return dict(zip(keys, inner.copies([*value.values()]), strict=True))
        return {key.normalise(k): inner.checked(v) for k, v in value.items()}

    def to_arrow(value: Any) -> list[tuple[Any, Any]]:
        if out is None:
            return list(value.items())
        return [(k, None if v is None else out(v)) for k, v in value.items()]

    python = types.GenericAlias(dict, (key.python, optional(inner.python)))
    check = of_maps(key.are_normal, inner.are_normal)
    return Codec(t, python, None, normalise, to_arrow, check)


class _Struct:
    """Makes objects of a struct: of its dataclass, or of a class made for it."""

    def __init__(self, t: Type) -> None:
        self._ddl = t.ddl
        self._names = [f.name for f in t.fields]
        self._attributes = [_attribute(n, i) for i, n in enumerate(self._names)]
        self._codecs = [codec_of(f.type) for f in t.fields]
        self._required = _required(t.python) if t.python else set()
        self._defaults = _defaults(t.python) if t.python else {}
        self.made: Any = t.python or self._class()
        self.check = of_objects(
            self.made,
            self._attributes,
            [c.are_normal for c in self._codecs],
            {
                a
                for a, n in zip(self._attributes, self._names, strict=True)
                if n in self._required
            },
        )

    def _class(self) -> type[msgspec.Struct]:
        fields = [
            (a, optional(c.python), None)
            for a, c in zip(self._attributes, self._codecs, strict=True)
        ]
        rename = dict(zip(self._attributes, self._names, strict=True))
        return msgspec.defstruct("Struct", fields, rename=rename)

    def normalise(self, value: Any) -> Any:
        fixed = [
            c.checked(v) for c, v in zip(self._codecs, self._values(value), strict=True)
        ]
        for name, v in zip(self._names, fixed, strict=True):
            if v is None and name in self._required:
                message = f"field {name!r} is None but not declared optional"
                raise ValueError(message)
        return self.made(**dict(zip(self._attributes, fixed, strict=True)))

    def _values(self, value: Any) -> list[Any]:
        if isinstance(value, Record):
            value = {n: v for n, v in value.as_dict().items() if n in self._names}
        if isinstance(value, dict):
            unknown = value.keys() - set(self._names)
            if unknown:
                message = f"no fields {sorted(map(str, unknown))} in {self._ddl}"
                raise ValueError(message)
            return [value[n] if n in value else self._default(n) for n in self._names]
        if isinstance(value, tuple | list) and len(value) == len(self._names):
            return list(value)
        if all(hasattr(value, a) for a in self._attributes):
            return [getattr(value, a) for a in self._attributes]
        raise _refuse(self._ddl, value)

    def _default(self, name: str) -> Any:
        make = self._defaults.get(name)
        return None if make is None else make()

    def to_arrow(self, value: Any) -> dict[str, Any]:
        result = {}
        for name, attribute, codec in zip(
            self._names, self._attributes, self._codecs, strict=True
        ):
            v, out = getattr(value, attribute), codec.to_arrow
            result[name] = v if v is None or out is None else out(v)
        return result


def _struct(t: Type) -> Codec:
    made = _Struct(t)
    return Codec(t, made.made, None, made.normalise, made.to_arrow, made.check)


_NESTED = {"array": _array, "map": _map, "struct": _struct}


def _attribute(name: str, position: int) -> str:
    """Return the attribute of a field: its name, if Python allows it."""
    is_free = name.isidentifier() and not keyword.iskeyword(name)
    return name if is_free and not name.startswith("__") else f"c{position}_"


def _required(python: type) -> set[str]:
    """Return the fields of a dataclass that may not be None."""
    hints = typing.get_type_hints(python)
    return {n for n, hint in hints.items() if type(None) not in typing.get_args(hint)}


def _defaults(python: type) -> dict[str, Callable[[], Any]]:
    """Return how the fields of a dataclass get their defaults, if they have any."""
    found: dict[str, Callable[[], Any]] = {}
    # By its type: in a class that was pickled by value, MISSING is another object.
    missing = type(dataclasses.MISSING)
    for f in dataclasses.fields(python):
        factory: Any = f.default_factory
        if not isinstance(factory, missing):
            found[f.name] = factory
        elif not isinstance(f.default, missing):
            found[f.name] = partial(_same, f.default)
    return found


def _same(value: Any) -> Any:
    return value
