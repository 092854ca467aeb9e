"""Rows from text that is one JSON object, without Spark: as ``json_text`` does it.

A row is bad, or has the values that it has there, for the same texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from riverlock.columnar.texts.moments import day_of, instant_of, local_of
from riverlock.columnar.texts.numbers import single_of
from riverlock.connectors.base.splits import without_spark
from riverlock.connectors.parsing.json_tokens import (
    NoJsonError,
    Pairs,
    Real,
    compact,
    parsed,
)
from riverlock.core.types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from riverlock.core.types import Field, Schema, Type

__all__ = ["JsonDecoder", "check_json"]

_MOST = (1 << 63) - 1
_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
# Escapes that are whole, and what is half a character where those are taken out.
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_WHOLE: Final = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
# Jackson reads no number of more characters.
_MOST_DIGITS: Final = 1_000
_LONG_NUMBER: Final = re.compile(rb"[0-9.eE+-]{1001}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NAMED: Final = {
    "NaN": "nan",
    **dict.fromkeys(("+INF", "+Infinity", "Infinity"), "inf"),
    **dict.fromkeys(("-INF", "-Infinity"), "-inf"),
}
_KINDS: Final = frozenset(
    (
        *(*INTEGERS, "boolean", "float", "double", "decimal", "string", "date"),
        *("timestamp", "timestamp_ntz", "struct", "array", "map"),
    )
)


class _MisfitError(ValueError):
    """A value is none of its column's type."""


class _NeedsTextError(ValueError):
    """A value depends on how it is written."""


def check_json(schema: Schema, what: str) -> None:
    """Refuse columns of types that only Spark reads from JSON.

    Raises:
        InvalidFlowError: There is one.
    """
    for field in schema.fields:
        found = _unknown(field.type)
        if found is not None:
            raise without_spark(what, f"column {field.name!r} of type {found.ddl}")


def _unknown(kind: Type) -> Type | None:
    if kind.kind not in _KINDS:
        return kind
    parts = [part for part in (kind.key, kind.element) if part is not None]
    parts += [f.type for f in kind.fields]
    found = map(_unknown, parts)
    return next((each for each in found if each is not None), None)


@dataclass(frozen=True)
class JsonDecoder:
    """Decodes texts into the columns of a schema; picklable."""

    schema: Schema

    def decoded(
        self, values: Sequence[bytes | None]
    ) -> tuple[pa.StructArray, list[str | None]]:
        """Return the columns of values, null where one is bad, and what is wrong.

        A value that is missing is a row of nulls.
        """
        wrong: list[str | None] = [None] * len(values)
        nothing = (None,) * len(self.schema.fields)
        rows: list[tuple[Any, ...]] = []
        for place, value in enumerate(values):
            try:
                rows.append(nothing if value is None else self._row(value))
            except (NoJsonError, _MisfitError):
                rows.append(nothing)
                wrong[place] = "no JSON object of these columns"
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(nothing)
        arrow = self.schema.to_arrow()
        arrays = [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(arrow)), wrong

    def _row(self, value: bytes) -> tuple[Any, ...]:
        if not self._is_plain(value):
            return self._slowly(value)
        try:
            found = msgspec.json.decode(value)
            if type(found) is dict:
                get = found.get
                return tuple([convert(get(name)) for name, convert in self._columns])
            raise _MisfitError
        except (msgspec.DecodeError, UnicodeDecodeError, _NeedsTextError):
            return self._slowly(value)
        except RecursionError:
            raise _MisfitError from None

    def _is_plain(self, value: bytes) -> bool:
        """Tell whether no name of ours occurs twice, and no number is very long.

        Of a name that does, the first value has to fit as well.
        """
        if b"\\u" in value or any(value.count(name) > 1 for name in self._names):
            return False
        return len(value) <= _MOST_DIGITS or _LONG_NUMBER.search(value) is None

    def _slowly(self, value: bytes) -> tuple[Any, ...]:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise _MisfitError from None
        if _HALF.search(_WHOLE.sub("_", text)):
            raise _MisfitError
        found = parsed(text)
        if not isinstance(found, Pairs):
            raise _MisfitError
        fields = _converted(found, dict(self._columns))
        return tuple([fields.get(name) for name in self.schema.names])

    @cached_property
    def _names(self) -> list[bytes]:
        return [f'"{name}"'.encode() for name in _names(self.schema.fields)]

    @cached_property
    def _columns(self) -> list[tuple[str, Callable[[Any], Any]]]:
        return [(f.name, _converter(f.type)) for f in self.schema.fields]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made of the schema."""
        return {"schema": self.schema}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the schema."""
        self.__dict__.update(state)


def _converter(kind: Type) -> Callable[[Any], Any]:
    """Return what turns a token into a value of a type; null stays null."""
    match kind.kind:
        case "struct":
            return _struct(kind)
        case "array":
            assert kind.element is not None
            each = _converter(kind.element)
            return lambda v: None if v is None else [each(e) for e in _listed(v)]
        case "map":
            return _map(kind)
        case "decimal":
            return lambda v: None if v is None else _decimal(v, kind)
        case name if name in INTEGERS:
            return _whole(INTEGERS[name])
        case name:
            convert = _PLAIN[name]
            return lambda v: None if v is None else convert(v)


def _whole(bits: int) -> Callable[[Any], Any]:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise _MisfitError
        return value

    return convert


def _struct(kind: Type) -> Callable[[Any], Any]:
    columns = {f.name: _converter(f.type) for f in kind.fields}

    def convert(value: Any) -> Any:
        return None if value is None else _converted(_object(value), columns)

    return convert


def _map(kind: Type) -> Callable[[Any], Any]:
    assert kind.element is not None
    each = _converter(kind.element)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return [(name, each(v)) for name, v in _object(value)]

    return convert


def _converted(
    pairs: list[tuple[str, Any]], columns: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """Return the fields of an object: all must fit, of one name the last counts."""
    return {name: columns[name](value) for name, value in pairs if name in columns}


def _names(fields: Sequence[Field]) -> set[str]:
    """Return the names of fields, and of those within them."""
    found: set[str] = set()
    for field in fields:
        found |= {field.name, *_names(_within(field.type))}
    return found


def _within(kind: Type) -> Sequence[Field]:
    parts = [part for part in (kind.key, kind.element) if part is not None]
    return [*kind.fields, *(f for part in parts for f in _within(part))]


def _object(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Pairs):
        return value
    if type(value) is not dict:
        raise _MisfitError
    return list(value.items())


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or isinstance(value, Pairs):
        raise _MisfitError
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise _MisfitError
    return value


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) in (float, dict, list):
        raise _NeedsTextError  # as it was written, or nearly
    return compact(value)


def _double(value: Any) -> float:
    if type(value) is float:
        return value
    return float(_number_text(value))


def _number_text(value: Any) -> str:
    """Return a number, or the name of one, as Python reads it."""
    if type(value) is int:
        return str(value)
    if isinstance(value, Real):
        return _NAMED.get(value.text, value.text)
    if type(value) is str and value in _NAMED:
        return _NAMED[value]
    raise _MisfitError


def _float(value: Any) -> float:
    if type(value) is float:
        raise _NeedsTextError  # rounding twice is not rounding once
    return single_of(_number_text(value))


def _decimal(value: Any, kind: Type) -> Decimal:
    if type(value) is float:
        raise _NeedsTextError
    if type(value) is str:
        if _DECIMAL.fullmatch(value) is None:
            raise _MisfitError
        text = value
    elif type(value) is int:
        text = str(value)
    elif isinstance(value, Real) and value.text not in _NAMED:
        text = value.text
    else:
        raise _MisfitError
    try:
        found = Decimal(text)
        if found.adjusted() > kind.precision:
            raise _MisfitError
        unit = Decimal(1).scaleb(-kind.scale)
        with_scale = found.quantize(unit, ROUND_HALF_UP)
    except InvalidOperation:
        raise _MisfitError from None
    if abs(with_scale) >= Decimal(10) ** (kind.precision - kind.scale):
        raise _MisfitError
    return with_scale


def _day(value: Any) -> int:
    found = day_of(value) if type(value) is str else None
    if found is None:
        raise _MisfitError
    return found


def _instant(value: Any) -> int:
    if type(value) is int:
        # A number of seconds; Spark lets those wrap around that do not fit.
        found: int | None = value * _SECOND_US
        assert found is not None
        if not -_MOST - 1 <= found <= _MOST:
            raise _MisfitError
        return found
    found = instant_of(value, "UTC", None) if type(value) is str else None
    if found is None:
        raise _MisfitError
    return found


def _local(value: Any) -> int:
    found = local_of(value, allows_zone=False) if type(value) is str else None
    if found is None:
        raise _MisfitError
    return found


_PLAIN: Final[dict[str, Callable[[Any], Any]]] = {
    "boolean": _truth,
    "string": _text,
    "double": _double,
    "float": _float,
    "date": _day,
    "timestamp": _instant,
    "timestamp_ntz": _local,
}
