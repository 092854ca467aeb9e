"""How an operator's declared state is laid out in entries, rows and columns.

Values without a time to live share one *row* per key: one look-up and one write per key
and epoch, however many there are. Everything else has entries of its own.
"""

from __future__ import annotations

import hashlib
import math
from functools import cached_property
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.types import Schema, type_of
from riverlock.core.values.known_types import known
from riverlock.state.codec import Codec, codec_of, encode, optional
from riverlock.state.spec import Map, StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from riverlock.snapshot.format.records import Variable

__all__ = ["Row", "StateLayout", "arrow_schema", "decoder"]


def canonical(value: float) -> float:
    """Return a floating-point key such that equal keys have equal bytes."""
    return value + 0.0 if value == value else math.nan


def decoder(codecs: list[Codec]) -> Callable[[bytes], tuple[Any, ...]]:
    """Return a function that turns the bytes of several values into a tuple of them."""
    parts = GenericAlias(tuple, tuple(optional(c.python) for c in codecs))
    decode: Callable[[bytes], tuple[Any, ...]] = msgspec.msgpack.Decoder(
        known(parts)
    ).decode
    return decode


class Row:
    """The values of one scope that are stored together."""

    def __init__(self, specs: list[StateSpec]) -> None:
        """Fix the order of the values: that of their declaration."""
        self.specs = specs
        self.names = [s.name for s in specs]
        self.codecs = [codec_of(s.type) for s in specs]
        # Defaults that can be changed in place, as bytes: each key is lent a copy.
        self.copied = [
            (s.name, encode(s.default))
            for s in specs
            if isinstance(s, Value) and s.is_copied
        ]
        # The row of a key of which nothing is set.
        self.unset = encode((None,) * len(specs))
        # Those whose values are not stored as they are: see ``Codec.plain``.
        self.objects = [s.name for s in specs if codec_of(s.type).plain is None]

    @cached_property
    def decode(self) -> Callable[[bytes], tuple[Any, ...]]:
        """Turn stored bytes into a tuple of values; None is unset."""
        return decoder(self.codecs)


class StateLayout:
    """Key columns and state variables of one operator."""

    def __init__(self, keys: Schema, specs: dict[str, StateSpec]) -> None:
        """Sort the variables by how they are stored."""
        self.keys = keys
        self.specs = specs
        packed = [s for s in specs.values() if s.is_packed]
        self.rows = {
            scope: Row([s for s in packed if s.scope == scope])
            for scope in ("key", "group", "broadcast")
        }
        self.handled = [s for s in specs.values() if not s.is_packed]

    @property
    def variables(self) -> dict[str, Variable]:
        """The records that manifests carry."""
        return {n: s.variable for n, s in self.specs.items()}

    @cached_property
    def digest(self) -> str:
        """A digest that changes when stored bytes can no longer be read as declared."""
        # A default is what is not stored.
        stored = {
            name: msgspec.structs.replace(variable, default=None)
            for name, variable in self.variables.items()
        }
        text = repr((self.keys.ddl, list(stored.items())))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def key_codecs(self) -> list[Codec]:
        """The codecs of the key columns."""
        return [codec_of(f.type) for f in self.keys.fields]

    @cached_property
    def decode_key(self) -> Callable[[bytes], tuple[Any, ...]]:
        """Turn a stored key back into a tuple of key values."""
        return decoder(self.key_codecs)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns of the operator's state files."""
        return arrow_schema(self.keys, self.variables)

    def scoped(self, scope: str) -> list[StateSpec]:
        """The handled variables of a scope."""
        return [s for s in self.handled if s.scope == scope]

    def key_of(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Return key values as they are stored: -0.0 is 0.0, and there is one NaN.

        Raises:
            TypeError, ValueError: A value does not fit its column.
        """
        found = [c.checked(v) for c, v in zip(self.key_codecs, values, strict=True)]
        return tuple(canonical(v) if type(v) is float else v for v in found)

    def map_key(self, spec: StateSpec) -> Codec:
        """The codec of a map's keys."""
        assert isinstance(spec, Map)
        return codec_of(spec.key_type)


def arrow_schema(keys: Schema, variables: dict[str, Variable]) -> pa.Schema:
    """Return the columns of state files (format §5): fixed ones, then typed data."""
    import pyarrow as pa

    fields = []
    for name, variable in variables.items():
        value = type_of(variable.type).to_arrow()
        if variable.kind == "list":
            value = pa.struct([("index", pa.int64()), ("value", value)])
        elif variable.kind == "map":
            key = type_of(variable.key).to_arrow()
            value = pa.struct([("key", key), ("value", value)])
        fields.append((name, value))
    instant = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [
            ("id", pa.binary()),
            ("entry", pa.string()),
            ("key_group", pa.int32()),
            ("key", pa.struct([(f.name, f.type.to_arrow()) for f in keys.fields])),
            ("variable", pa.string()),
            ("deleted", pa.bool_()),
            ("expires_at", instant),
            ("timer", pa.struct([("kind", pa.string()), ("at", instant)])),
            # Parquet has no empty struct: an operator with timers only has no data.
            *([("data", pa.struct(fields))] if fields else []),
        ]
    )
