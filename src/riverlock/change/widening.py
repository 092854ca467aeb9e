"""Types that can hold every value of another type, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.types import INTEGERS

if TYPE_CHECKING:
    from riverlock.core.types import Type

__all__ = ["is_wider"]

# The widest integers that a floating-point number holds exactly.
_EXACT_BITS = {"float": 16, "double": 32}


def is_wider(new: Type, old: Type) -> bool:
    """Tell whether a type holds every value of another one, or is the same.

    >>> from riverlock.core.types import type_of
    >>> is_wider(type_of("bigint"), type_of("int"))
    True
    >>> is_wider(type_of("array<double>"), type_of("array<float>"))
    True
    >>> is_wider(type_of("int"), type_of("bigint"))
    False
    """
    if new == old:
        return True
    if old.kind in INTEGERS:
        bits = INTEGERS[old.kind]
        most = INTEGERS.get(new.kind) or _EXACT_BITS.get(new.kind, 0)
        return bits <= most
    if old.kind != new.kind:
        return (old.kind, new.kind) == ("float", "double")
    match old.kind:
        case "decimal":
            whole = new.precision - new.scale >= old.precision - old.scale
            return whole and new.scale >= old.scale
        case "array":
            return _is_wider(new.element, old.element)
        case "map":
            return new.key == old.key and _is_wider(new.element, old.element)
        case "struct":
            names = [f.name for f in old.fields] == [f.name for f in new.fields]
            pairs = zip(new.fields, old.fields, strict=False)
            return names and all(is_wider(n.type, o.type) for n, o in pairs)
        case _:
            return False


def _is_wider(new: Type | None, old: Type | None) -> bool:
    return new is not None and old is not None and is_wider(new, old)
