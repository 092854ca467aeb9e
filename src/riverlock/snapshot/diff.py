"""What differs between two snapshots: keys added, removed, changed, with values.

Files that both have are the same state. Of these only such are read as can hold an
entry that the other files change, to tell what it was before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.snapshot.files import live, merge_tables, read_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from riverlock.snapshot.records import Manifest, OperatorState, StateFile
    from riverlock.storage.base import Storage

__all__ = ["Change", "Diff", "Side", "diff"]

TIMERS = "timers"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two snapshots."""

    storage: Storage
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One value that differs.

    Attributes:
        operator: The operator.
        variable: The state variable, or ``timers``.
        key: The key columns; None of state that a group or everyone shares.
        key_group: The key group; None of broadcast state.
        part: The index in a list, the key in a map, the kind and instant of a timer.
        kind: ``added``, ``removed`` or ``changed``.
        before: The value before; None if there was none.
        after: The value after; None if there is none.
    """

    operator: str
    variable: str
    key: dict[str, Any] | None
    key_group: int | None
    part: Any
    kind: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """All that differs.

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

        A key of which some elements of a list or map were added and others removed
        counts as changed.
        """
        kinds: dict[tuple[str, str, str], set[str]] = {}
        for each in self.changes:
            place = (each.operator, each.variable, repr((each.key, each.key_group)))
            is_part = each.part is not None and each.variable != TIMERS
            kinds.setdefault(place, set()).add("changed" if is_part else each.kind)
        found: dict[str, dict[str, dict[str, int]]] = {}
        for (operator, variable, _), mine in kinds.items():
            counts = found.setdefault(operator, {}).setdefault(
                variable, {"added": 0, "removed": 0, "changed": 0}
            )
            counts[mine.pop() if len(mine) == 1 else "changed"] += 1
        return found


def diff(before: Side, after: Side) -> Diff:
    """Compare two snapshots, of one store, or of a fork and its parent.

    Raises:
        SnapshotCorruptedError: A file that is needed is missing or altered.
    """
    old, new = before.manifest.operators, after.manifest.operators
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
        self._states: tuple[OperatorState | None, ...] = tuple(
            side.manifest.operators.get(uid) for side in self._sides
        )
        self.reads: Counter[str] = Counter()
        self._tables: dict[str, pa.Table] = {}

    def changes(self) -> Iterator[Change]:
        known = [_identities(s) for s in self._states]
        shared = known[0].keys() & known[1].keys()
        if self._may_expire():
            shared = set()  # what no file changes may be gone by time
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
        values = [self._values(place, ids, groups, shared) for place in (0, 1)]
        yield from self._compared(*values)

    def _may_expire(self) -> bool:
        ttl = any(
            v.ttl_us is not None
            for s in self._states
            if s is not None
            for v in s.variables.values()
        )
        now = {side.manifest.now_us for side in self._sides}
        return ttl and len(now) > 1

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
        now_us = self._sides[place].manifest.now_us
        return dict(_flat(live(merge_tables(tables), now_us)))

    def _compared(
        self, old: dict[tuple[Any, ...], Any], new: dict[tuple[Any, ...], Any]
    ) -> Iterator[Change]:
        for place in sorted(old.keys() | new.keys(), key=repr):
            before, after = old.get(place), new.get(place)
            if before == after or repr(before) == repr(after):
                continue
            key, group, variable, part = place
            kind = (
                "added" if before is None else "removed" if after is None else "changed"
            )
            yield Change(
                operator=self._uid,
                variable=variable,
                key=None if key is None else dict(key),
                key_group=group,
                part=part,
                kind=kind,
                before=before,
                after=after,
            )


def _identities(state: OperatorState | None) -> dict[tuple[Any, ...], StateFile]:
    """Return files by what tells whether two are the same, oldest first."""
    files = () if state is None else state.files
    ordered = sorted(files, key=lambda f: (f.first_epoch, f.last_epoch))
    return {(f.checksum, f.bytes, f.first_epoch, f.first_group): f for f in ordered}


def _may_hold(file: StateFile, groups: set[int | None]) -> bool:
    if file.shared and None in groups:
        return True
    mine = (g for g in groups if g is not None)
    return any(file.first_group <= g < file.end_group for g in mine)


def _flat(entries: pa.Table) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each value with its key, group, variable, and place in a list or map."""
    for row in entries.to_pylist():
        key = None if row["key"] is None else tuple(row["key"].items())
        at = (key, row["key_group"])
        if row["entry"] == "timer":
            timer = row["timer"]
            yield (*at, TIMERS, (timer["kind"], timer["at"])), timer["at"]
            continue
        for variable, value in (row.get("data") or {}).items():
            if value is None:
                continue
            if row["entry"] == "list":
                yield (*at, variable, value["index"]), value["value"]
            elif row["entry"] == "map":
                yield (*at, variable, _hashable(value["key"])), value["value"]
            else:
                yield (*at, variable, None), value


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_hashable(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _hashable(v)) for k, v in value.items())
    return value
