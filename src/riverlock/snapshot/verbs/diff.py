"""What differs between two snapshots: keys added, removed, changed, with values.

Files that both have are the same state. Of these only those are read that can hold an
entry that the other files change, to know its earlier value.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from riverlock.core.types import type_of
from riverlock.core.values.arrow_values import python_rows
from riverlock.core.values.json_values import from_json
from riverlock.core.values.sameness import is_same
from riverlock.snapshot.format.state_files import live, merge_tables, read_table
from riverlock.snapshot.state_reader import operator_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from riverlock.snapshot.format.records import Manifest, OperatorState, StateFile
    from riverlock.storage.base import Storage

__all__ = ["Change", "Diff", "Side", "diff"]

TIMERS = "timers"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two snapshots: an epoch of each region."""

    storage: Storage
    manifests: tuple[Manifest, ...]

    @property
    def operators(self) -> dict[str, OperatorState]:
        """The operators of all regions."""
        return {u: s for m in self.manifests for u, s in m.operators.items()}

    def having(self, operator: str) -> Manifest:
        """Return the epoch of the region that has an operator, or else any."""
        found = (m for m in self.manifests if operator in m.operators)
        return next(found, self.manifests[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value that differs.

    Attributes:
        operator: The operator.
        variable: The state variable, or ``timers``.
        key: The key columns; None for state that a group or everyone shares.
        key_group: The key group; None for broadcast state.
        part: The index in a list, the key in a map, the kind and instant of a timer.
        kind: ``added``, ``removed`` or ``changed``.
        key_kind: The same for the variable of the key as a whole: ``changed`` if the
            key had, and has, some element of the list or map, or some timer.
        before: The value before; None if there was none.
        after: The value after; None if there is none.
    """

    operator: str
    variable: str
    key: dict[str, Any] | None
    key_group: int | None
    part: Any
    kind: str
    key_kind: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Everything that differs.

    Attributes:
        changes: In the order of operators, variables and entries.
        operators_added: Operators that only the second snapshot has.
        operators_removed: Operators that only the first one has.
        files_read: State files that were read.
        files_skipped: State files that did not need to be.
    """

    changes: tuple[Change, ...]
    operators_added: tuple[str, ...]
    operators_removed: tuple[str, ...]
    files_read: int
    files_skipped: int

    def summary(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return numbers of keys by operator, variable and kind of change.

        A key is added if it had nothing of the variable, and removed if it no longer
        has anything of it; with a list or map that grew or shrank, or other timers, it
        changed.
        """
        found: dict[str, dict[str, dict[str, int]]] = {}
        seen: set[tuple[str, str, str]] = set()
        for each in self.changes:
            place = (each.operator, each.variable, repr((each.key, each.key_group)))
            if place in seen:
                continue
            seen.add(place)
            counts = found.setdefault(each.operator, {}).setdefault(
                each.variable, {"added": 0, "removed": 0, "changed": 0}
            )
            counts[each.key_kind] += 1
        return found


def diff(before: Side, after: Side, operator: str | None = None) -> Diff:
    """Compare two snapshots, of one store, or of a fork and its parent.

    Args:
        before: The first snapshot.
        after: The second one.
        operator: Compare only its state.

    Raises:
        SnapshotCorruptedError: A file that is needed is missing or altered.
        SnapshotNotFoundError: Neither has the operator.
    """
    old, new = before.operators, after.operators
    if operator is not None:
        if operator not in old:
            operator_of(after.having(operator), operator, store=after.storage.uri)
        old, new = ({u: s for u, s in m.items() if u == operator} for m in (old, new))
    changes: list[Change] = []
    reads: Counter[str] = Counter()
    for uid in sorted(old.keys() | new.keys()):
        pair = _Pair(before, after, uid)
        changes += pair.changes()
        reads += pair.reads
    every = sum(len(s.files) for side in (old, new) for s in side.values())
    read = sum(reads.values())
    return Diff(
        changes=tuple(changes),
        operators_added=tuple(sorted(new.keys() - old.keys())),
        operators_removed=tuple(sorted(old.keys() - new.keys())),
        files_read=read,
        files_skipped=every - read,
    )


class _Pair:
    """The state of one operator in both snapshots."""

    def __init__(self, before: Side, after: Side, uid: str) -> None:
        self._sides = (before, after)
        self._uid = uid
        self._manifests = tuple(side.having(uid) for side in self._sides)
        self._states: tuple[OperatorState | None, ...] = tuple(
            manifest.operators.get(uid) for manifest in self._manifests
        )
        self.reads: Counter[str] = Counter()
        self._tables: dict[str, pa.Table] = {}

    def changes(self) -> Iterator[Change]:
        known = [_identities(s) for s in self._states]
        shared = known[0].keys() & known[1].keys()
        if self._may_expire() or self._declare_others():
            # What no file changes may be gone by time, or by code that dropped it.
            shared = set()
        differing = [f for k in known for i, f in k.items() if i not in shared]
        if not differing:
            return
        ids: set[bytes] = set()
        groups: set[int | None] = set()
        for place, found in enumerate(known):
            for identity, file in found.items():
                if identity not in shared:
                    table = self._read(place, file)
                    ids.update(table["id"].to_pylist())
                    groups.update(table["key_group"].unique().to_pylist())
        old, new = (self._values(place, ids, groups, shared) for place in (0, 1))
        had, has = ({place[:3] for place in side} for side in (old, new))
        # Which of those that seem to begin or to end have more in files of both sides?
        kept = self._kept(had ^ has, ids, shared)
        yield from self._compared(old, new, had | kept, has | kept)

    def _may_expire(self) -> bool:
        ttl = any(
            v.ttl_us is not None
            for s in self._states
            if s is not None
            for v in s.variables.values()
        )
        now = {manifest.now_us for manifest in self._manifests}
        return ttl and len(now) > 1

    def _declare_others(self) -> bool:
        before, after = (None if s is None else {*s.variables} for s in self._states)
        return before is not None and after is not None and before != after

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        """The values of variables that a key has not set, though it has others.

        Those of the second snapshot, for variables that both declare: a new or changed
        declaration alone is not a change of a key.
        """
        before, after = (None if s is None else s.variables for s in self._states)
        found = {
            name: from_json(type_of(v.type), v.default)
            for name, v in (after or {}).items()
            if before is not None and name in before and v.ttl_us is None
        }
        return {name: value for name, value in found.items() if value is not None}

    def _read(self, place: int, file: StateFile) -> pa.Table:
        identity = f"{file.checksum}-{file.bytes}"
        if identity not in self._tables:
            self.reads[identity] += 1
            self._tables[identity] = read_table(self._sides[place].storage, file)
        return self._tables[identity]

    def _values(
        self, place: int, ids: set[bytes], groups: set[int | None], shared: set[Any]
    ) -> dict[tuple[Any, ...], Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array(sorted(ids), pa.binary())
        tables = [
            table.filter(pc.is_in(table["id"].cast(pa.binary()), wanted))
            for identity, file in _identities(self._states[place]).items()
            if identity not in shared or _may_hold(file, groups)
            for table in [self._read(place, file)]
        ]
        if not tables:
            return {}
        now_us = self._manifests[place].now_us
        state = self._states[place]
        assert state is not None
        entries = live(merge_tables(tables), now_us)
        return dict(_flat(entries, state, self._defaults))

    def _kept(
        self, some: set[tuple[Any, ...]], ids: set[bytes], shared: set[Any]
    ) -> set[tuple[Any, ...]]:
        """Return which keys and variables have entries that are the same in both."""
        import pyarrow as pa
        import pyarrow.compute as pc

        groups = {group for _, group, _ in some}
        changed = pa.array(sorted(ids), pa.binary())
        tables = [
            same.filter(pc.invert(pc.is_in(same["id"].cast(pa.binary()), changed)))
            for identity, file in _identities(self._states[0]).items()
            if identity in shared and _may_hold(file, groups)
            for same in [_of_keys(self._read(0, file), {key for key, _, _ in some})]
        ]
        if not tables:
            return set()
        now_us = self._manifests[0].now_us
        state = self._states[0]
        assert state is not None
        entries = live(merge_tables(tables), now_us)
        return {place[:3] for place, _ in _flat(entries, state, self._defaults)} & some

    def _compared(
        self,
        old: dict[tuple[Any, ...], Any],
        new: dict[tuple[Any, ...], Any],
        had: set[tuple[Any, ...]],
        has: set[tuple[Any, ...]],
    ) -> Iterator[Change]:
        for place in sorted(old.keys() | new.keys(), key=repr):
            before, after = old.get(place), new.get(place)
            if is_same(before, after):
                continue
            key, group, variable, part = place
            yield Change(
                operator=self._uid,
                variable=variable,
                key=None if key is None else dict(key),
                key_group=group,
                part=part,
                kind=_kind(before is not None, after is not None),
                key_kind=_kind(place[:3] in had, place[:3] in has),
                before=before,
                after=after,
            )


def _kind(was: bool, there: bool) -> str:  # noqa: FBT001 - the two sides
    return "changed" if was and there else "removed" if was else "added"


def _of_keys(table: pa.Table, keys: set[Any]) -> pa.Table:
    """Return entries that may be of some keys, and those that have none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pc.is_valid(table["key"])
    for field in table["key"].type:
        values = [dict(key)[field.name] for key in keys if key is not None]
        column = pc.struct_field(table["key"], field.name)
        wanted = pc.and_(wanted, pc.is_in(column, pa.array(values, field.type)))
    return table.filter(pc.or_(wanted, pc.is_null(table["key"])))


def _identities(state: OperatorState | None) -> dict[tuple[Any, ...], StateFile]:
    """Return files by what shows whether two are the same, oldest first."""
    files = () if state is None else state.files
    ordered = sorted(files, key=lambda f: (f.first_epoch, f.last_epoch))
    return {(f.checksum, f.bytes, f.first_epoch, f.first_group): f for f in ordered}


def _may_hold(file: StateFile, groups: set[int | None]) -> bool:
    if file.shared and None in groups:
        return True
    mine = (g for g in groups if g is not None)
    return any(file.first_group <= g < file.end_group for g in mine)


def _flat(
    entries: pa.Table, state: OperatorState, defaults: Mapping[str, Any]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each value with its key, group, variable, and place in a list or map.

    Files may have variables that the code of the epoch had dropped: these are no state.
    """
    for row in python_rows(entries):
        key = None if row["key"] is None else _key(row["key"])
        at = (key, row["key_group"])
        if row["entry"] == "timer":
            timer = row["timer"]
            yield (*at, TIMERS, (timer["kind"], timer["at"])), timer["at"]
            continue
        data = row.get("data") or {}
        if defaults and row["entry"] == "values":
            unset = _of_scope(defaults, state, _scope(row))
            data = {**unset, **{n: v for n, v in data.items() if v is not None}}
        for variable, value in data.items():
            if value is None or variable not in state.variables:
                continue
            if row["entry"] == "list":
                yield (*at, variable, value["index"]), value["value"]
            elif row["entry"] == "map":
                yield (*at, variable, _hashable(value["key"])), value["value"]
            else:
                yield (*at, variable, None), value


def _of_scope(
    defaults: Mapping[str, Any], state: OperatorState, scope: str
) -> dict[str, Any]:
    known = state.variables
    return {n: d for n, d in defaults.items() if known[n].scope == scope}


def _scope(row: dict[str, Any]) -> str:
    if row["key"] is not None:
        return "key"
    return "broadcast" if row["key_group"] is None else "group"


def _key(columns: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((n, _hashable(v)) for n, v in columns.items())


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_hashable(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _hashable(v)) for k, v in value.items())
    # One NaN for all: as objects, two of them are two keys.
    return math.nan if value != value else value
