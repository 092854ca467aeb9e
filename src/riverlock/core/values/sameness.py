"""Whether two values of a state are one: as stored, not as Python compares."""

from __future__ import annotations

import struct
from typing import Any

__all__ = ["is_same"]

_DOUBLE = struct.Struct("<d")


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same, also if one is of a wider type.

    >>> is_same(0.0, -0.0), is_same(True, 1), is_same({"a": [0.0]}, {"a": [-0.0]})
    (False, False, False)
    >>> is_same(float("nan"), float("nan")), is_same(1, 1.0), is_same([None], [None])
    (True, True, True)
    """
    if isinstance(one, float) and isinstance(other, float):
        # There is one NaN, as among keys.
        both_nan = one != one and other != other
        return both_nan or _DOUBLE.pack(one) == _DOUBLE.pack(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return is_same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
