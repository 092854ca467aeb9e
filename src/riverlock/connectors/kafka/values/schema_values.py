"""What values with a schema have in common, whatever their format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["BadValueError", "Decode"]

# From the bytes behind the number of the schema to plain values.
Decode = Callable[[bytes], Any]


class BadValueError(Exception):
    """A value cannot be decoded; says why."""
