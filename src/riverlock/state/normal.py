"""Checks many values at once for being in their stored form.

What user code may have changed in place is checked after every record, and most of it
is unchanged. A loop over values and fields takes some microseconds for each object. So
values are checked by columns: the types of all, then one field of all, and so on. A
check says yes only if normalising would produce the same; no means: look at each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.core.types import Type

__all__ = ["Check", "check_of", "of_lists", "of_maps", "of_objects"]

# Told of values, of which any may be None.
Check: TypeAlias = Callable[[list[Any]], bool]
_NONE: Final = type(None)
_BITS: Final = {"byte": 8, "short": 16, "int": 32, "long": 64}
_EXACT: Final = {"boolean": bool, "double": float, "binary": bytes, "date": date}


def _present(values: list[Any], kind: type) -> list[Any] | None:
    """Return the values that are not None if all are of a class; else None."""
    kinds = set(map(type, values))
    if kinds <= {kind}:
        return values
    return [v for v in values if v is not None] if kinds <= {kind, _NONE} else None


def check_of(t: Type) -> Check:
    """Return the check of a type that has no other ones inside."""
    if t.kind in _BITS:
        return _integers(_BITS[t.kind])
    if t.kind in _EXACT:
        kinds = frozenset((_EXACT[t.kind], _NONE))
        return lambda values: kinds.issuperset(map(type, values))
    if t.kind == "decimal":
        return _decimals(t)
    return {
        "string": _texts,
        "float": _singles,
        "timestamp": _instants,
        "timestamp_ntz": _local_times,
    }[t.kind]


def _integers(bits: int) -> Check:
    limit = 1 << (bits - 1)

    def check(values: list[Any]) -> bool:
        found = _present(values, int)
        return found is not None and (
            not found or (min(found) >= -limit and max(found) < limit)
        )

    return check


def _texts(values: list[Any]) -> bool:
    found = _present(values, str)
    if found is None:
        return False
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        return False
    return True


def _singles(values: list[Any]) -> bool:
    found = _present(values, float)
    if found is None:
        return False
    singles, doubles = f"<{len(found)}f", f"<{len(found)}d"
    try:
        rounded = struct.unpack(singles, struct.pack(singles, *found))
    except OverflowError:
        return False
    return struct.pack(doubles, *rounded) == struct.pack(doubles, *found)


def _instants(values: list[Any]) -> bool:
    found = _present(values, datetime)
    return found is not None and all(v.tzinfo is UTC and not v.fold for v in found)


def _local_times(values: list[Any]) -> bool:
    found = _present(values, datetime)
    return found is not None and all(v.tzinfo is None and not v.fold for v in found)


def _decimals(t: Type) -> Check:
    exponent, precision = -t.scale, t.precision

    def is_normal(value: Decimal) -> bool:
        sign, digits, found = value.as_tuple()
        return (
            found == exponent and len(digits) <= precision and not (sign and not value)
        )

    def check(values: list[Any]) -> bool:
        found = _present(values, Decimal)
        return found is not None and all(map(is_normal, found))

    return check


def of_lists(inner: Check) -> Check:
    """Return the check of lists, from that of their elements."""

    def check(values: list[Any]) -> bool:
        found = _present(values, list)
        return found is not None and inner(list(chain.from_iterable(found)))

    return check


def of_maps(key: Check, inner: Check) -> Check:
    """Return the check of dictionaries, from those of keys and values."""

    def check(values: list[Any]) -> bool:
        found = _present(values, dict)
        if found is None:
            return False
        keys = list(chain.from_iterable(found))
        return (
            _NONE not in set(map(type, keys))
            and key(keys)
            and inner(list(chain.from_iterable(map(dict.values, found))))
        )

    return check


def of_objects(
    kind: type, attributes: Sequence[str], inner: Sequence[Check], required: set[str]
) -> Check:
    """Return the check of objects of a class, from those of their attributes.

    Args:
        kind: The class.
        attributes: What is stored of it.
        inner: A check for each.
        required: Attributes that may not be None.
    """
    columns = [
        (attrgetter(name), check, name in required)
        for name, check in zip(attributes, inner, strict=True)
    ]

    def check(values: list[Any]) -> bool:
        found = _present(values, kind)
        if found is None:
            return False
        for get, is_normal, is_required in columns:
            try:
                column = list(map(get, found))
            except AttributeError:
                return False
            if is_required and _NONE in set(map(type, column)):
                return False
            if not is_normal(column):
                return False
        return True

    return check
