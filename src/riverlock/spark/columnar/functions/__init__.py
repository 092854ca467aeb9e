"""How expressions of Spark are compiled, by the name of their class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.spark.columnar.functions import (
    arithmetic,
    casts,
    logic,
    nested,
    strings,
    times,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.spark.columnar.functions.builder import Builder

__all__ = ["BUILDERS"]

BUILDERS: Mapping[str, Builder] = {
    **arithmetic.BUILDERS,
    **casts.BUILDERS,
    **logic.BUILDERS,
    **nested.BUILDERS,
    **strings.BUILDERS,
    **times.BUILDERS,
}
