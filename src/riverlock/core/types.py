"""Data types as Spark writes them: parsed, printed, and mapped to Arrow and Python.

One type tree serves sources, outputs and declared state, so that a DDL string, a
PySpark type, a Python annotation and a dataclass all mean the same thing. The DDL text
is what manifests carry. Needs neither PySpark nor (until ``to_arrow``) PyArrow.
"""

from __future__ import annotations

import dataclasses
import decimal
import re
import types
import typing
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from riverlock.core.errors import InvalidConfigError
from riverlock.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

__all__ = ["Field", "Schema", "SchemaLike", "Type", "TypeLike", "schema_of", "type_of"]

TypeLike: TypeAlias = Any  # DDL text, a PySpark DataType, a Python annotation, a Type
SchemaLike: TypeAlias = Any  # DDL text, a StructType, a dataclass, a Schema

_ALIASES = {
    "bool": "boolean",
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "int",
    "integer": "int",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "decimal": "decimal",
    "dec": "decimal",
    "numeric": "decimal",
}
_PYTHON: dict[object, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "binary",
    date: "date",
    datetime: "timestamp",
}
# The widths that key hashing and Arrow need to agree on.
INTEGERS = {"byte": 8, "short": 16, "int": 32, "long": 64}


@dataclass(frozen=True, slots=True)
class Field:
    """A named part of a struct."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Type:
    """A data type; ``ddl`` prints it as Spark would parse it."""

    kind: str
    element: Type | None = None  # of an array, or the value of a map
    key: Type | None = None  # of a map
    fields: tuple[Field, ...] = ()
    precision: int = 0
    scale: int = 0
    # The dataclass a struct was declared by: values are given back as such.
    python: type | None = field(default=None, compare=False)

    @property
    def ddl(self) -> str:
        """The type as DDL text."""
        match self.kind:
            case "array":
                assert self.element
                return f"array<{self.element.ddl}>"
            case "map":
                assert self.element
                assert self.key
                return f"map<{self.key.ddl},{self.element.ddl}>"
            case "struct":
                inner = ",".join(f"{_quote(f.name)}:{f.type.ddl}" for f in self.fields)
                return f"struct<{inner}>"
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case kind:
                return {"long": "bigint", "byte": "tinyint", "short": "smallint"}.get(
                    kind, kind
                )

    def to_arrow(self) -> pa.DataType:
        """Return the Arrow type that Spark exchanges for this type."""
        return _to_arrow(self)


@dataclass(frozen=True, slots=True)
class Schema:
    """An ordered set of named, typed columns."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(f.name for f in self.fields)

    @property
    def ddl(self) -> str:
        """The schema as DDL text."""
        return ", ".join(f"{_quote(f.name)} {f.type.ddl}" for f in self.fields)

    def __getitem__(self, name: str) -> Type:
        """Return the type of a column."""
        for f in self.fields:
            if f.name == name:
                return f.type
        raise KeyError(name)

    def select(self, names: Iterable[str]) -> Schema:
        """Return some of the columns, in the order of their names."""
        return Schema(tuple(Field(name, self[name]) for name in names))

    def to_arrow(self) -> pa.Schema:
        """Return the schema in Arrow."""
        import pyarrow as pa

        return pa.schema([(f.name, f.type.to_arrow()) for f in self.fields])


def type_of(spec: TypeLike) -> Type:
    """Return the type meant by DDL text, a PySpark type or a Python annotation.

    >>> type_of("array<struct<a:int,b:string>>").ddl
    'array<struct<a:int,b:string>>'
    >>> type_of(dict[str, float]).ddl
    'map<string,double>'

    Raises:
        InvalidConfigError: The type is unknown.
    """
    if isinstance(spec, Type):
        return spec
    if isinstance(spec, str):
        return _parse_type(spec)
    if hasattr(spec, "jsonValue"):  # a pyspark.sql.types.DataType, or its class
        return _from_json((spec() if isinstance(spec, type) else spec).jsonValue())
    return _from_python(spec)


def schema_of(spec: SchemaLike) -> Schema:
    """Return the columns meant by DDL text, a StructType or a dataclass.

    >>> schema_of("user string, amount decimal(10,2)").ddl
    'user string, amount decimal(10,2)'

    Raises:
        InvalidConfigError: A type is unknown or a column appears twice.
    """
    if isinstance(spec, Schema):
        return spec
    struct = _Parser(spec).columns() if isinstance(spec, str) else type_of(spec)
    if struct.kind != "struct" or not struct.fields:
        raise _unknown(spec, "columns such as 'user string, amount double'")
    names = [f.name for f in struct.fields]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise _unknown(spec, f"each column once, but {sorted(twice)} repeat")
    return Schema(struct.fields)


def _unknown(spec: object, expected: str, hint: str = "") -> InvalidConfigError:
    what = "the type" if isinstance(spec, str) else "a type or its columns"
    return InvalidConfigError(what, expected=expected, found=repr(spec), hint=hint)


def _quote(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return name
    return "`" + name.replace("`", "``") + "`"


_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([A-Za-z0-9_.#@\-]+)|([<>(),:]))")


class _Parser:
    """Recursive descent over DDL text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if not match:
                raise _unknown(text, "a type or columns as Spark writes them")
            self._tokens.append(match.group(0).strip())
            at = match.end()
        self._at = 0

    def columns(self) -> Type:
        fields = self._fields(end=None)
        return Type("struct", fields=fields)

    def single(self) -> Type:
        found = self._type()
        if self._peek() is not None:
            raise _unknown(self._text, "one type")
        return found

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise _unknown(self._text, "a complete type")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _unknown(self._text, f"{token!r} in the type")

    def _number(self) -> int:
        token = self._next()
        if not token.isdecimal():
            raise _unknown(self._text, f"a number instead of {token!r}")
        return int(token)

    def _name(self) -> str:
        name = self._next()
        if name in "<>(),:":
            raise _unknown(self._text, f"a name instead of {name!r}")
        return name[1:-1].replace("``", "`") if name.startswith("`") else name

    def _fields(self, end: str | None) -> tuple[Field, ...]:
        fields: list[Field] = []
        while self._peek() not in (end, None):
            name = self._name()
            if self._peek() == ":":
                self._next()
            fields.append(Field(name, self._type()))
            if (self._peek() or "").lower() == "not":
                self._next()
                self._next()
            if self._peek() not in (end, None):
                self._expect(",")
                if self._peek() in (end, None):
                    raise _unknown(self._text, "a column after the last comma")
        return tuple(fields)

    def _type(self) -> Type:
        word = self._next().lower()
        match word:
            case "array":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return Type("array", element=element)
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                value = self._type()
                self._expect(">")
                return Type("map", key=key, element=value)
            case "struct":
                self._expect("<")
                fields = self._fields(end=">")
                self._expect(">")
                return Type("struct", fields=fields)
            case _:
                return self._simple(word)

    def _simple(self, word: str) -> Type:
        kind = _ALIASES.get(word)
        if kind is None:
            raise _unknown(
                self._text,
                f"a Spark type in place of {word!r}",
                did_you_mean(word, [*_ALIASES, "array", "map", "struct"]),
            )
        if kind != "decimal":
            return Type(kind)
        precision, scale = 10, 0
        if self._peek() == "(":
            self._next()
            precision = self._number()
            if self._peek() == ",":
                self._next()
                scale = self._number()
            self._expect(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise _unknown(self._text, "a decimal of at most 38 digits")
        return Type("decimal", precision=precision, scale=scale)


@lru_cache(maxsize=1024)
def _parse_type(text: str) -> Type:
    return _Parser(text).single()


def _from_json(value: Any) -> Type:
    """Read the JSON form of PySpark's types."""
    if isinstance(value, str):
        return _parse_type(value)
    match value["type"]:
        case "array":
            return Type("array", element=_from_json(value["elementType"]))
        case "map":
            return Type(
                "map",
                key=_from_json(value["keyType"]),
                element=_from_json(value["valueType"]),
            )
        case "struct":
            fields = tuple(
                Field(f["name"], _from_json(f["type"])) for f in value["fields"]
            )
            return Type("struct", fields=fields)
        case other:
            raise _unknown(other, "a type that Riverlock can store")


def _from_python(spec: Any) -> Type:
    if isinstance(spec, type) and spec in _PYTHON:
        return Type(_PYTHON[spec])
    if spec is decimal.Decimal:
        return Type("decimal", precision=38, scale=18)
    if dataclasses.is_dataclass(spec) and isinstance(spec, type):
        hints = typing.get_type_hints(spec)
        _settle_annotations(spec)
        fields = tuple(
            Field(f.name, type_of(hints[f.name])) for f in dataclasses.fields(spec)
        )
        return Type("struct", fields=fields, python=spec)
    origin, args = typing.get_origin(spec), typing.get_args(spec)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in args if a is not type(None)]
        if len(rest) == 1:
            return type_of(rest[0])
    if origin is list and args:
        return Type("array", element=type_of(args[0]))
    if origin is dict and args:
        return Type("map", key=type_of(args[0]), element=type_of(args[1]))
    raise _unknown(
        spec, "DDL text, a PySpark type, a dataclass or a Python type such as float"
    )


def _settle_annotations(spec: type) -> None:
    """Replace annotations that are text by what they mean.

    A class of a script travels to workers without its module: there, nobody could
    tell what the text ``datetime`` means.
    """
    for cls in spec.__mro__:
        own = vars(cls).get("__annotations__", {})
        if any(isinstance(a, str) for a in own.values()):
            meant = typing.get_type_hints(cls, include_extras=True)
            cls.__annotations__ = {n: meant[n] for n in own}


def _to_arrow(t: Type) -> pa.DataType:
    import pyarrow as pa

    match t.kind:
        case "array":
            assert t.element
            return pa.list_(_to_arrow(t.element))
        case "map":
            assert t.key
            assert t.element
            return pa.map_(_to_arrow(t.key), _to_arrow(t.element))
        case "struct":
            return pa.struct([(f.name, _to_arrow(f.type)) for f in t.fields])
        case "decimal":
            return pa.decimal128(t.precision, t.scale)
        case "timestamp":
            return pa.timestamp("us", tz="UTC")
        case "timestamp_ntz":
            return pa.timestamp("us")
        case kind:
            simple: dict[str, pa.DataType] = {
                "boolean": pa.bool_(),
                "byte": pa.int8(),
                "short": pa.int16(),
                "int": pa.int32(),
                "long": pa.int64(),
                "float": pa.float32(),
                "double": pa.float64(),
                "string": pa.string(),
                "binary": pa.binary(),
                "date": pa.date32(),
            }
            return simple[kind]
