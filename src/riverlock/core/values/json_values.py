"""Values of declared types as JSON, for records that must be read without code."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.core.types import Type

__all__ = ["from_json", "to_json"]

_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "float": float,
    "double": float,
    "decimal": Decimal,
    "binary": base64.b64decode,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
}


def to_json(kind: Type, value: Any) -> Any:
    """Return the JSON of a value in Arrow's terms: a map is a list of pairs."""
    if value is None:
        return None
    match kind.kind:
        case "float" | "double":
            return value if math.isfinite(value) else str(value)
        case "decimal":
            return str(value)
        case "binary":
            return base64.b64encode(value).decode()
        case "date" | "timestamp" | "timestamp_ntz":
            return value.isoformat()
        case "array":
            assert kind.element is not None
            return [to_json(kind.element, v) for v in value]
        case "map":
            assert kind.key is not None
            assert kind.element is not None
            pairs = ((to_json(kind.key, k), v) for k, v in value)
            return [[k, to_json(kind.element, v)] for k, v in pairs]
        case "struct":
            return {f.name: to_json(f.type, value[f.name]) for f in kind.fields}
        case _:
            return value


def from_json(kind: Type, value: Any) -> Any:
    """Return the value, in Arrow's terms, that ``to_json`` was given."""
    if value is None:
        return None
    if kind.kind in _READ:
        return _READ[kind.kind](value)
    match kind.kind:
        case "array":
            assert kind.element is not None
            return [from_json(kind.element, v) for v in value]
        case "map":
            assert kind.key is not None
            assert kind.element is not None
            pairs = ((from_json(kind.key, k), v) for k, v in value)
            return [(k, from_json(kind.element, v)) for k, v in pairs]
        case "struct":
            return {f.name: from_json(f.type, value.get(f.name)) for f in kind.fields}
        case _:
            return value
