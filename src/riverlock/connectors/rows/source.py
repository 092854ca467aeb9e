"""A list as a source: for tests, on any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riverlock.core.types import Schema

__all__ = ["Rows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Rows of a list; what is appended to it later comes later."""

    schema: Schema
    rows: list[Any]
    bounded: bool = False
    kind: str = "rows"
