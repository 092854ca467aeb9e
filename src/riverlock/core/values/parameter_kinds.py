"""Kinds of values that a parameter can have: checked, stored as JSON, and read back.

A value has three forms: *live*, what user code sees; *stored*, the JSON that requests
and manifests carry; and text, as people write it on the command line.
"""

from __future__ import annotations

import copy
import json
import math
from decimal import Decimal, InvalidOperation
from typing import Any

__all__ = ["KINDS", "kind_of", "live", "parsed", "stored"]

KINDS = ("bool", "int", "float", "str", "decimal", "list", "dict")
_TYPES = {bool: "bool", int: "int", float: "float", str: "str", Decimal: "decimal"}
_LARGEST = (1 << 63) - 1
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a finite number",
    "str": "text",
    "decimal": "a decimal number",
    "list": "a list of JSON values",
    "dict": "a dictionary of JSON values",
}


def kind_of(value: object) -> str | None:
    """Return the kind of a live value; None if a parameter cannot have it."""
    for kind in (list, dict):
        if isinstance(value, kind):
            return kind.__name__
    return _TYPES.get(type(value))


def stored(kind: str, value: object) -> Any:
    """Return what is stored of a value, live or stored.

    Raises:
        ValueError: It is not of the kind.
    """
    match kind, value:
        case "bool", bool():
            return value
        case (("int" | "float"), int()) if not isinstance(value, bool):
            return float(_whole(value)) if kind == "float" else _whole(value)
        case "float", float() if math.isfinite(value):
            return value
        case "str", str():
            return _text(value)
        case "decimal", (Decimal() | str()):
            return _decimal(value)
        case "decimal", int() if not isinstance(value, bool):
            return str(value)
        case ("list", list()) | ("dict", dict()):
            return _json(value)
        case _:
            raise ValueError(f"{_WORDS[kind]}, not {value!r}")


def live(kind: str, value: Any) -> Any:
    """Return what user code sees of a stored value: its own copy."""
    if kind == "decimal":
        return Decimal(value)
    return copy.deepcopy(value)


def parsed(kind: str, text: str) -> Any:
    """Return what is stored of a value that was written as text.

    Raises:
        ValueError: It is not of the kind.
    """
    if kind in ("str", "decimal"):
        return stored(kind, text)
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    return stored(kind, found)


def _whole(value: int) -> int:
    if abs(value) > _LARGEST:
        raise ValueError(f"a number of 64 bits, not {value}")
    return value


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{_WORDS['str']}, not {value!r}") from None
    return value


def _decimal(value: Decimal | str) -> str:
    try:
        found = Decimal(value)
    except InvalidOperation:
        found = Decimal("nan")
    if not found.is_finite():
        raise ValueError(f"{_WORDS['decimal']}, not {str(value)!r}")
    return str(found)


def _json(value: Any) -> Any:
    """Return a copy of a nested value, as JSON would give it back."""
    match value:
        case None | bool():
            return value
        case str():
            return _text(value)
        case int():
            return _whole(value)
        case float() if math.isfinite(value):
            return value
        case list():
            return [_json(each) for each in value]
        case dict() if all(isinstance(key, str) for key in value):
            # In the order of the store, so that a replay sees what the epoch saw.
            return {_text(key): _json(value[key]) for key in sorted(value)}
        case _:
            raise ValueError(f"JSON values, not {value!r}")
