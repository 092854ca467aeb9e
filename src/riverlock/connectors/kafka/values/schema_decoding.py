"""Decodes values of records with schemas of a registry, inside tasks.

A value is a zero byte, the number of its schema in four bytes, and the body; for
Protobuf, the body begins with which message of the schema it is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa

from riverlock.connectors.kafka.values.avro import avro_decode
from riverlock.connectors.kafka.values.protobuf import protobuf_decode
from riverlock.connectors.kafka.values.registry import UnknownSchemaError
from riverlock.connectors.kafka.values.schema_values import BadValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.connectors.kafka.values.registry import Registered, Registry
    from riverlock.connectors.kafka.values.schema_values import Decode
    from riverlock.core.types import Schema, Type

__all__ = ["FORMATS", "Decoder"]

_HEAD: Final = 5
FORMATS: Final[dict[str, Callable[[Registered], Decode]]] = {
    "avro": avro_decode,
    "protobuf": protobuf_decode,
}
# By registry, format and number; what a number means never changes.
_KNOWN: dict[tuple[str, str, int], Decode] = {}
# A schema is registered before records name it, but a registry of several servers may
# take a moment to know it everywhere: seconds to wait, in all, per task.
_PAUSES: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
# Numbers that this process has waited for, in vain.
_WAITED_FOR: set[tuple[str, str, int]] = set()


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Decodes values; picklable, asks the registry where it is used."""

    format: str
    registry: Registry
    schema: Schema
    source: str  # the uid to name in errors
    # Numbers that the registry did not know, with what is said of them.
    _unknown: dict[int, str] = field(default_factory=dict, repr=False)
    _pauses: list[float] = field(default_factory=lambda: [*_PAUSES], repr=False)

    def decoded(
        self, values: list[bytes | None]
    ) -> tuple[pa.StructArray, list[str | None]]:
        """Return the columns of values, null where one is bad, and what is wrong.

        Raises:
            SourceError: The registry refuses.
            SourceUnavailableError: The registry does not answer.
        """
        wrong: list[str | None] = [None] * len(values)
        bodies: list[Any] = [None] * len(values)
        for place, value in enumerate(values):
            try:
                bodies[place] = None if value is None else self._row(value)
            except BadValueError as error:
                wrong[place] = str(error)
        kind = pa.struct(list(self.schema.to_arrow()))
        try:
            return pa.array(bodies, kind), wrong
        except _MISFITS:
            return self._one_by_one(bodies, wrong, kind), wrong

    @staticmethod
    def _one_by_one(
        bodies: list[Any], wrong: list[str | None], kind: pa.DataType
    ) -> pa.StructArray:
        """Find the values that do not fit the columns."""
        for place, body in enumerate(bodies):
            try:
                pa.array([body], kind)
            except _MISFITS as error:
                bodies[place], wrong[place] = None, f"it does not fit: {error}"
        return pa.array(bodies, kind)

    def _row(self, value: bytes) -> Any:
        if len(value) < _HEAD or value[0] != 0:
            message = "it does not begin with the number of a schema"
            raise BadValueError(message)
        number = int.from_bytes(value[1:_HEAD], "big")
        decode = self._decode(number)
        try:
            found = decode(value[_HEAD:])
        except BadValueError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it stumbles over
            message = f"it is no {self.format} of schema {number}: {error}"
            raise BadValueError(message) from None
        if not isinstance(found, dict):
            message = f"schema {number} is no record"
            raise BadValueError(message)
        return {f.name: _shaped(found.get(f.name), f.type) for f in self.schema.fields}

    def _decode(self, number: int) -> Decode:
        name = (self.registry.url, self.format, number)
        if name in _KNOWN:
            return _KNOWN[name]
        if number not in self._unknown:
            try:
                _KNOWN[name] = self._waited_for(number, name)
                return _KNOWN[name]
            except UnknownSchemaError:
                _WAITED_FOR.add(name)
                self._unknown[number] = f"the registry has no schema {number}"
            except BadValueError as error:
                self._unknown[number] = f"schema {number}: {error}"
        raise BadValueError(self._unknown[number])

    def _waited_for(self, number: int, name: tuple[str, str, int]) -> Decode:
        while name not in _WAITED_FOR and self._pauses:
            try:
                return self._asked(number)
            except UnknownSchemaError:
                time.sleep(self._pauses.pop(0))
        return self._asked(number)

    def _asked(self, number: int) -> Decode:
        is_protobuf = self.format == "protobuf"
        found = self.registry.schema(number, source=self.source, serialized=is_protobuf)
        if found.kind != self.format.upper():
            message = f"it is of {found.kind}, not {self.format.upper()}"
            raise BadValueError(message)
        return FORMATS[self.format](found)


_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _shaped(value: Any, kind: Type) -> Any:
    """Return a value as Arrow takes it: maps as pairs, structs by their fields.

    Raises:
        BadValueError: Arrow would take it for something else.
    """
    match kind.kind, value:
        case _, None:
            return None
        case "map", dict():
            assert kind.element
            return [(k, _shaped(v, kind.element)) for k, v in value.items()]
        case "array", list():
            assert kind.element
            return [_shaped(v, kind.element) for v in value]
        case "struct", dict():
            return {f.name: _shaped(value.get(f.name), f.type) for f in kind.fields}
        case "string", UUID():
            return str(value)
        case (("timestamp" | "timestamp_ntz" | "date"), int()):
            # Arrow would take it for microseconds or days, whatever it counts.
            message = f"it does not fit: a number in place of a {kind.ddl}"
            raise BadValueError(message)
        case _:
            return value
