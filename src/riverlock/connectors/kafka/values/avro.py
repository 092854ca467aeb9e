"""Avro values, decoded with a schema of a registry."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from riverlock.connectors.kafka.values.schema_values import BadValueError

if TYPE_CHECKING:
    from riverlock.connectors.kafka.values.registry import Registered
    from riverlock.connectors.kafka.values.schema_values import Decode

__all__ = ["avro_decode"]


def avro_decode(schema: Registered) -> Decode:
    """Return a decoder for the bytes after the schema number.

    Raises:
        BadValueError: It is not an Avro schema.
    """
    import fastavro

    named: dict[str, Any] = {}
    try:
        parsed = _parsed(schema, named)
    except (ValueError, KeyError, fastavro.schema.SchemaParseException) as error:
        message = f"its schema cannot be used: {error}"
        raise BadValueError(message) from None

    def decode(body: bytes) -> Any:
        stream = io.BytesIO(body)
        found = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(body):
            message = "there are bytes after its end"
            raise BadValueError(message)
        return found

    return decode


def _parsed(schema: Registered, named: dict[str, Any]) -> Any:
    import fastavro

    for _, other in schema.references:
        _parsed(other, named)
    return fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
