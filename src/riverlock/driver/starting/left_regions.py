"""Regions and loops that the code no longer has: nothing is left behind in silence.

A region counts as left while the newest epochs of others still fill a channel for it:
once an epoch of the new code is decided, it was left with the user's consent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import StateSchemaError
from riverlock.program.regions import regions_of
from riverlock.snapshot.backlog import position_in, sent_since, unread
from riverlock.snapshot.format.channels import channels_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.program.program import Program
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["check_left_regions", "left_regions"]


def check_left_regions(catalog: Catalog, flow: Program) -> None:
    """Refuse to go on without regions that have state, or loops that have rows.

    Raises:
        StateSchemaError: Nothing was changed.
    """
    for error in left_regions(catalog, flow):
        raise error


def left_regions(catalog: Catalog, flow: Program) -> Iterator[StateSchemaError]:
    """Yield what keeps a flow from going on without what it had."""
    now = regions_of(flow)
    yield from _left_loops(catalog, flow, now)
    for region, newest in _left(catalog, now):
        for uid, state in newest.operators.items():
            if state.files and uid not in flow.retired:
                yield StateSchemaError(
                    operator=uid,
                    expected=f"the code has no region {region!r}",
                    found=f"{state.entries} entries of state there",
                    hint=f"enter it with .region({region!r}) as before; if its state is"
                    f" gone for good: flow.retired({uid!r})",
                )


def _left(catalog: Catalog, now: tuple[str, ...]) -> Iterator[tuple[str, Manifest]]:
    """Yield the regions that others fill channels for and that are not there now."""
    known, ways = set(now), list(now)
    while ways:
        region = ways.pop()
        newest = catalog.of(region).newest()
        if newest is None:
            continue
        if region not in now:
            yield region, newest
        behind = {reader for _, reader, _ in channels_of(newest)} - known
        known |= behind
        ways += sorted(behind)


def _left_loops(
    catalog: Catalog, flow: Program, now: tuple[str, ...]
) -> Iterator[StateSchemaError]:
    """Yield the loops that have rows and are not there now."""
    for region in now:
        writer = catalog.of(region)
        newest = writer.newest()
        for loop, reader, is_back in () if newest is None else channels_of(newest):
            if (
                newest is None
                or not is_back
                or {loop} & (flow.loops.keys() | flow.retired)
            ):
                continue
            position = position_in(catalog.of(reader).newest(), region, loop)
            rows = unread(sent_since(writer, newest, loop, position), position).rows
            if rows:
                yield StateSchemaError(
                    operator=loop,
                    expected="the code has no such loop",
                    found=f"a loop with {rows} rows that wait in it",
                    hint=f"declare it as before, flow.loop(..., uid={loop!r}), until it"
                    f" is empty; if its rows are to be lost: flow.retired({loop!r})",
                )
