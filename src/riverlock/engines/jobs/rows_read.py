"""How many rows sources delivered to a stage, where only reading tells."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from riverlock.connectors.base.source_reader import Counted
from riverlock.snapshot.format.run_status import ROWS_READ

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.votes import Vote

__all__ = ["with_rows_read"]


def with_rows_read(
    votes: tuple[Vote, ...], readers: Mapping[str, Reader]
) -> tuple[Vote, ...]:
    """Return the votes of a stage, one of which says how much was read of each source.

    Tasks cannot tell: they receive rows that Spark may have combined before.
    """
    known: dict[str, float] = {}
    for uid, reader in readers.items():
        each: object = reader
        rows = each.rows_read() if isinstance(each, Counted) else None
        if rows is not None:
            known[ROWS_READ + uid] = rows
    if not votes or not known:
        return votes
    first, *others = votes
    return (replace(first, metrics={**first.metrics, **known}), *others)
