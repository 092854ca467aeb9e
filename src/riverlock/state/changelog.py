"""What one task changed in one epoch: as Parquet columns and as store bytes.

The columns go to the snapshot, the bytes to the local redo file that the next epoch
applies to the working copy once this epoch is committed.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

from riverlock.core.errors import StateTypeError
from riverlock.state.codec import NONE, Codec, encode
from riverlock.state.copy.layers import DELETED
from riverlock.state.copy.redo import Redo
from riverlock.state.keys import timer_slot

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.state.layout import Row, StateLayout

__all__ = ["KINDS", "ChangeLog", "Entry", "EntryLog"]

KINDS = ("event", "processing")
Key = tuple[Any, ...] | None


@dataclass(slots=True)
class _Rows:
    """Changed rows of values, column by column to be."""

    ids: list[bytes] = field(default_factory=list)
    groups: list[int | None] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    values: list[tuple[Any, ...] | None] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    # Whether all values are known to be of their types.
    are_settled: bool = True


@dataclass(slots=True)
class Entry:
    """A changed entry of its own: list element, map entry, expiring value, timer."""

    id: bytes
    entry: str
    group: int | None
    key: Key
    variable: str | None
    payload: bytes | None  # None: deleted
    data: Any = None
    expires_us: int | None = None
    timer: tuple[str, int] | None = None


class Keyed(Protocol):
    """Keys and the rows that they began with."""

    ids: list[bytes]
    groups: list[int]
    keys: list[tuple[Any, ...]]
    payloads: list[bytes | None]


class EntryLog(Protocol):
    """What one task changed in one epoch; complete, and read once.

    Attributes:
        added: By how many the number of entries grew.
    """

    added: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""

    def table(self) -> pa.Table:
        """Return the changes as the table of a state file, sorted by id.

        Raises:
            StateTypeError: A value does not fit its declared type.
        """

    def entries(self) -> tuple[list[bytes], list[bytes | None]]:
        """Return the ids that changed and their payloads, None for deleted ones."""

    def redo(self) -> Redo:
        """Return the changes in the bytes of a working copy."""

    def forget(self) -> None:
        """Release all changes, once they are written."""


class ChangeLog:
    """Collects changes in any order; an id is recorded at most once."""

    def __init__(self, layout: StateLayout, uid: str) -> None:
        """Begin without changes."""
        self._layout = layout
        self._operator = uid
        self._rows = {scope: _Rows() for scope in layout.rows}
        self._entries: list[Entry] = []
        self._timers: list[tuple[bytes, bytes, bytes | None]] = []
        self.added = 0
        self._table: pa.Table | None = None
        # The entry that ``table`` could not store.
        self.refused: bytes | None = None

    def row(
        self,
        scope: str,
        at: tuple[bytes, int | None, Key],
        values: tuple[Any, ...] | None,
        payload: bytes | None,
    ) -> None:
        """Record a row of values, or with None its removal.

        Values of types that are not plain must be normal: see ``Codec``.
        """
        rows = self._rows[scope]
        rows.are_settled = False
        rows.ids.append(at[0])
        rows.groups.append(at[1])
        rows.keys.append(at[2])
        rows.values.append(values)
        rows.payloads.append(payload)

    def changed_rows(
        self,
        keyed: Keyed,
        values: list[tuple[Any, ...]],
        payloads: list[bytes | None],
    ) -> None:
        """Record the rows of many keys that have changed.

        Args:
            keyed: The keys, with the payloads that they began with.
            values: What each ended with, settled.
            payloads: The same as bytes.
        """
        before = keyed.payloads
        if payloads == before:
            return
        # By their bytes: users say what equality of their classes means.
        unset = self._layout.rows["key"].unset
        left: list[tuple[Any, ...] | None] = list(values)
        after: list[bytes | None] = list(payloads)
        if unset in payloads:
            pairs = zip(values, payloads, strict=True)
            left = [None if p == unset else v for v, p in pairs]
            after = [None if p == unset else p for p in payloads]
        changed = list(map(operator.ne, after, before))
        rows = self._rows["key"]
        rows.ids.extend(compress(keyed.ids, changed))
        rows.groups.extend(compress(keyed.groups, changed))
        rows.keys.extend(compress(keyed.keys, changed))
        rows.values.extend(compress(left, changed))
        rows.payloads.extend(compress(after, changed))
        self.added += before.count(None) - after.count(None)

    def entry(self, entry: Entry) -> None:
        """Record an entry of its own."""
        self._entries.append(entry)

    def timer(
        self, at: tuple[bytes, int | None, Key], kind: int, when_us: int, *, on: bool
    ) -> None:
        """Record that a timer was set or is gone."""
        slot = timer_slot(kind, when_us)
        payload = encode(at[2]) if on else None
        self._entries.append(
            Entry(
                at[0] + slot,
                "timer",
                at[1],
                at[2],
                None,
                payload,
                timer=(KINDS[kind], when_us),
            )
        )
        self._timers.append((slot[1:], at[0], payload))

    def forget(self) -> None:
        """Release all changes, once they are written.

        User code's instance leads to the log and back. Otherwise the garbage collector
        would look through the log several times before freeing it.
        """
        self._rows = {scope: _Rows() for scope in self._layout.rows}
        self._entries, self._timers = [], []
        self._table = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not self._entries and not any(r.ids for r in self._rows.values())

    @property
    def timers(self) -> list[tuple[bytes, bytes, bytes | None]]:
        """Timers that were set or are gone, as ``Changes`` has them."""
        return self._timers

    @property
    def expiries(self) -> list[bytes]:
        """When which entries expire, as ``Changes`` has it."""
        return [
            e.payload[:8] + e.id
            for e in self._entries
            if e.payload is not None and e.expires_us is not None
        ]

    def entries(self) -> tuple[list[bytes], list[bytes | None]]:
        """Return the ids of all changes and their payloads, None for deleted ones.

        Call after ``table``, which normalises.
        """
        ids = [i for rows in self._rows.values() for i in rows.ids]
        payloads = [p for rows in self._rows.values() for p in rows.payloads]
        ids += [e.id for e in self._entries]
        payloads += [e.payload for e in self._entries]
        return ids, payloads

    def redo(self) -> Redo:
        """Return the changes in the bytes of a working copy; call after ``table``."""
        ids, payloads = self.entries()
        rows = [DELETED if p is None else p for p in payloads]
        return Redo((ids, rows), self.timers, self.expiries)

    def table(self) -> pa.Table:
        """Return the changes as a table sorted by id; call it when all are there.

        Raises:
            StateTypeError: User code assigned a value that the type cannot hold.
        """
        if self._table is None:
            self._table = self._made()
        return self._table

    def _made(self) -> pa.Table:
        import pyarrow as pa

        parts = [
            self._rows_table(scope, rows)
            for scope, rows in self._rows.items()
            if rows.ids
        ]
        if self._entries:
            parts.append(self._entries_table())
        table = pa.concat_tables(parts) if parts else self._layout.arrow.empty_table()
        # Keys are visited in order: rows of one scope need no sorting.
        is_sorted = len(parts) <= 1 and not self._entries
        return table if is_sorted else table.sort_by("id")

    def _rows_table(self, scope: str, rows: _Rows) -> pa.Table:
        import pyarrow as pa

        row, n = self._layout.rows[scope], len(rows.ids)
        self._normalise(row, rows)
        values: list[Any] = rows.values
        deleted: pa.Array = pa.repeat(pa.scalar(value=False), n)
        if None in values:
            deleted = pa.array([v is None for v in values], pa.bool_())
            values = [v or (None,) * len(row.names) for v in values]
        columns = zip(*values, strict=True)
        data = {
            name: self._array(codec, list(column), name, rows)
            for name, codec, column in zip(row.names, row.codecs, columns, strict=True)
        }
        schema = self._layout.arrow
        data_type = schema.field("data").type
        structs = [data.get(f.name, pa.nulls(n, f.type)) for f in data_type]
        return pa.table(
            [
                pa.array(rows.ids, pa.binary()),
                pa.repeat(pa.scalar("values"), n),
                pa.array(rows.groups, pa.int32()),
                self._key_array(rows.keys),
                pa.nulls(n, pa.string()),
                deleted,
                pa.nulls(n, schema.field("expires_at").type),
                pa.nulls(n, schema.field("timer").type),
                pa.StructArray.from_arrays(
                    structs, fields=list(data_type), mask=deleted
                ),
            ],
            schema=schema,
        )

    def _normalise(self, row: Row, rows: _Rows) -> None:
        """Bring plain values to their declared type; payloads follow what changed.

        Values of other types are already in their normal form.
        """
        if rows.are_settled:
            return
        for at, (name, codec) in enumerate(zip(row.names, row.codecs, strict=True)):
            if codec.plain is None:
                continue
            found = {type(v[at]) for v in rows.values if v is not None}
            if found <= {codec.plain, NONE}:
                continue
            for i, values in enumerate(rows.values):
                if values is None or values[at] is None:
                    continue
                fixed = self._checked(codec, values[at], name, rows, i)
                fresh = (*values[:at], fixed, *values[at + 1 :])
                rows.values[i] = fresh
                rows.payloads[i] = encode(fresh)

    def _checked(
        self, codec: Codec, value: Any, name: str, rows: _Rows, place: int
    ) -> Any:
        try:
            return codec.normalise(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            self.refused = rows.ids[place]
            raise StateTypeError(
                operator=self._operator,
                variable=name,
                key=_shown(rows.keys[place]),
                expected=f"{codec.type.ddl} ({error})",
                found=value,
            ) from error

    def _array(
        self, codec: Codec, values: list[Any], name: str, rows: _Rows
    ) -> pa.Array:
        import pyarrow as pa

        if codec.to_arrow is not None:
            values = [None if v is None else codec.to_arrow(v) for v in values]
        try:
            return pa.array(values, codec.type.to_arrow())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            for place, value in enumerate(values):
                if value is not None:
                    self._checked(codec, value, name, rows, place)
            raise

    def _key_array(self, keys: list[Key]) -> pa.StructArray:
        import pyarrow as pa

        kind = self._layout.arrow.field("key").type
        found: list[Any] = keys
        mask = None
        if None in keys:
            found = [k or (None,) * kind.num_fields for k in keys]
            mask = pa.array([k is None for k in keys])
        columns = zip(*found, strict=True)
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, kind, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)

    def _entries_table(self) -> pa.Table:
        import pyarrow as pa

        entries, schema = self._entries, self._layout.arrow
        columns: dict[str, Any] = {
            "id": [e.id for e in entries],
            "entry": [e.entry for e in entries],
            "key_group": [e.group for e in entries],
            "variable": [e.variable for e in entries],
            "deleted": [e.payload is None for e in entries],
        }
        arrays = {n: pa.array(v, schema.field(n).type) for n, v in columns.items()}
        arrays["key"] = self._key_array([e.key for e in entries])
        instant = schema.field("expires_at").type
        arrays["expires_at"] = (
            pa.array([e.expires_us for e in entries]).cast(pa.int64()).cast(instant)
        )
        arrays["timer"] = pa.StructArray.from_arrays(
            [
                pa.array([e.timer[0] if e.timer else None for e in entries], "string"),
                pa.array(
                    [e.timer[1] if e.timer else None for e in entries], "int64"
                ).cast(instant),
            ],
            fields=list(schema.field("timer").type),
            mask=pa.array([e.timer is None for e in entries]),
        )
        if "data" in schema.names:
            arrays["data"] = self._data_array(schema.field("data").type)
        return pa.table([arrays[n] for n in schema.names], schema=schema)

    def _data_array(self, kind: pa.StructType) -> pa.StructArray:
        import pyarrow as pa

        arrays = []
        for f in kind:
            mine = [
                e.data if e.variable == f.name and e.payload is not None else None
                for e in self._entries
            ]
            arrays.append(pa.array(mine, f.type))
        mask = pa.array([e.payload is None or not e.variable for e in self._entries])
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)


def _shown(key: Key) -> object:
    return key[0] if key is not None and len(key) == 1 else key
