"""From one retained epoch to the next: the entries then, and which keys may differ."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.values.arrow_values import python_values
from riverlock.query.keys.key_spans import place_of
from riverlock.query.retained import while_retained
from riverlock.snapshot.format.state_files import live, merge_tables
from riverlock.snapshot.state_reader import merged_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.query.relation import Relation
    from riverlock.snapshot.format.parts import IdSpan
    from riverlock.snapshot.format.records import Manifest, StateFile

__all__ = ["StateAt"]


@dataclass(frozen=True, slots=True)
class StateAt:
    """What a relation covers, at the end of an epoch, in a span of ids.

    Attributes:
        relation: Says whose state it is, and what of it is shown.
        manifest: The epoch.
        span: The ids.
        entries: The live entries that have them, sorted.
    """

    relation: Relation
    manifest: Manifest
    span: IdSpan
    entries: pa.Table

    @staticmethod
    def read(relation: Relation, manifest: Manifest, span: IdSpan) -> StateAt:
        """Read all files of the epoch that can have such entries."""
        found = _merged(relation, manifest, _files(relation, manifest), span)
        return StateAt(relation, manifest, span, live(found, manifest.now_us))

    def next(self, manifest: Manifest) -> tuple[StateAt, list[IdSpan] | None]:
        """Return the state at a later epoch, and where it may differ; None: anywhere.

        Only change files are read, if the epoch did nothing but add some.
        """
        relation, span = self.relation, self.span
        old, new = _files(relation, self.manifest), _files(relation, manifest)
        added = _added(old, new, self.manifest.epoch, manifest.epoch)
        # Files that a migration has written look like merged ones, but hold new values.
        is_migrated = _since(relation, self.manifest) != _since(relation, manifest)
        if added is None or is_migrated:
            return StateAt.read(relation, manifest, span), None
        changed = _merged(relation, manifest, added, span)
        merged = merge_tables([self.entries, changed])
        after = StateAt(relation, manifest, span, live(merged, manifest.now_us))
        if relation.view.scope != "key":
            return after, None
        expired = _without(self.entries, live(self.entries, manifest.now_us))
        keys = [*changed["key"].to_pylist(), *expired["key"].to_pylist()]
        return after, self._places(keys)

    def _places(self, keys: Sequence[dict[str, Any] | None]) -> list[IdSpan]:
        groups = self.manifest.key_groups
        places = (
            place_of(tuple(key.values()), self.relation.view.state, groups).span
            for key in keys
            if key is not None
        )
        # By their first ids: a NaN in a key is not equal to itself.
        found = {place.first: place for place in places}
        return [found[first] for first in sorted(found)]

    def rows(self, places: list[IdSpan] | None) -> list[tuple[Any, ...]]:
        """Return the rows that the relation shows, of some places or of all."""
        table = self.entries
        if places is not None:
            table = table.take(_indices(table["id"].to_pylist(), places))
        shown = self.relation.view.rows(table)
        columns = [python_values(c, far=str, dicts=True) for c in shown.columns]
        return list(zip(*columns, strict=True))


def _files(relation: Relation, manifest: Manifest) -> tuple[StateFile, ...]:
    state = manifest.operators.get(relation.operator)
    return () if state is None else state.files


def _since(relation: Relation, manifest: Manifest) -> int | None:
    state = manifest.operators.get(relation.operator)
    return None if state is None else state.since


def _merged(
    relation: Relation, manifest: Manifest, files: tuple[StateFile, ...], span: IdSpan
) -> pa.Table:
    with while_retained(relation.storage, manifest):
        found = merged_entries(relation.storage, files, span)
    return relation.view.conformed(found)


def _added(
    old: tuple[StateFile, ...], new: tuple[StateFile, ...], before: int, epoch: int
) -> tuple[StateFile, ...] | None:
    """Return the change files of an epoch; None if it did more than add them.

    Files may have been merged, which changes nothing. But files that are gone without
    having been merged are those of a state that went back.
    """
    known = {f.path for f in old}
    fresh = [f for f in new if f.path not in known]
    added = tuple(f for f in fresh if f.last_epoch == epoch)
    merged = [f for f in fresh if f.last_epoch != epoch]
    left = {f.path for f in new}
    gone = [f for f in old if f.path not in left]
    is_step = (
        epoch == before + 1
        and all(f.first_epoch == epoch for f in added)
        and all(any(_covers(m, f) for m in merged) for f in gone)
        and all(any(_covers(m, f) for f in gone) for m in merged)
    )
    return added if is_step else None


def _covers(merged: StateFile, file: StateFile) -> bool:
    within = merged.first_epoch <= file.first_epoch
    within = within and file.last_epoch <= merged.last_epoch
    meets = merged.first_group < file.end_group and file.first_group < merged.end_group
    return within and (meets or (merged.shared and file.shared))


def _without(table: pa.Table, other: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    known = pc.is_in(table["id"], value_set=other["id"].combine_chunks())
    return table.filter(pc.invert(known))


def _indices(ids: list[bytes], places: list[IdSpan]) -> pa.Array:
    import pyarrow as pa

    found: list[int] = []
    for place in places:
        end = len(ids) if place.end is None else bisect_left(ids, place.end)
        found += range(bisect_left(ids, place.first), end)
    return pa.array(found, pa.int64())
