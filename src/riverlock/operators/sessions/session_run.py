"""Sessions of one operator, one task, one epoch, column by column.

Does for aggregates what ``Sessions`` does record by record: the same rows, the same
state, the same timers, bit for bit. Records of the epoch and stored sessions of their
keys are sorted by key and start, cut where a span starts after all before it have
ended, and merged. Where columns cannot do the same (a sum that may exceed 64 bits, a
user's aggregator) it declines, and the loop does it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.hidden_columns import GAP, TIME
from riverlock.core.times import END_US
from riverlock.operators.aggregates.merging import state_array
from riverlock.operators.aggregates.pairwise import Column
from riverlock.operators.aggregates.partial import results_of
from riverlock.operators.base import GONE
from riverlock.operators.effects import Effects
from riverlock.operators.sessions.stored_sessions import SessionColumns, StoredSessions
from riverlock.operators.sessions.time_spans import Instants
from riverlock.operators.shipped import MAIN
from riverlock.snapshot.format.records import TimerHeads
from riverlock.state.codec import encode
from riverlock.state.columns.column_log import ColumnLog
from riverlock.state.columns.timer_columns import TimerColumns
from riverlock.state.store import EVENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from riverlock.operators.aggregates.partial import PartialAggregate
    from riverlock.operators.base import Work
    from riverlock.operators.task_input import KeyedInput
    from riverlock.program.windows import SessionWindows
    from riverlock.state.store import StateReader

__all__ = ["SessionRun"]

_INSTANT = pa.timestamp("us", tz="UTC")
_FOREVER = 1 << 62


@dataclass(frozen=True)
class _Visited:
    """Keys with records or with a timer that is due, in the order of their ids."""

    ids: list[bytes]
    keys: list[tuple[Any, ...]]
    payloads: list[bytes | None]
    # Where the keys of the input are among them.
    places: np.ndarray

    @cached_property
    def groups(self) -> np.ndarray:
        """The key groups."""
        raw = b"".join([i[:2] for i in self.ids])
        return np.frombuffer(raw, dtype=">u2").astype(np.int32)


class _Timers:
    """The stored timers of a task, read once."""

    def __init__(self, reader: StateReader, watermark_us: int | None) -> None:
        """Read those that are due."""
        # The keys of those that are due, by their ids.
        self.keys: dict[bytes, bytes] = {}
        self._due: list[tuple[int, bytes]] = []
        self._later: Iterator[tuple[int, bytes, bytes]] = reader.due_timers(
            EVENT, _FOREVER
        )
        if watermark_us is None:
            return
        for at, key_id, key in self._later:
            if at > watermark_us:
                self._later = chain([(at, key_id, key)], self._later)
                return
            self.keys[key_id] = key
            self._due.append((at, key_id))

    def due(self, ids: Sequence[bytes]) -> Instants:
        """Return those that are due, of keys in their places."""
        places = {key_id: place for place, key_id in enumerate(ids)}
        return Instants(
            np.array([places[key_id] for _, key_id in self._due], dtype=np.int64),
            np.array([at for at, _ in self._due], dtype=np.int64),
        )

    def head(self, changed: TimerColumns) -> int | None:
        """Return the earliest that is pending when some have changed."""
        is_gone = np.array([p is None for p in changed.payloads], dtype=bool)
        fresh = changed.at_us[~is_gone]
        pairs = zip(changed.at_us.tolist(), changed.ids, strict=True)
        gone = set(compress(pairs, is_gone.tolist()))
        stored = (at for at, key_id, _ in self._later if (at, key_id) not in gone)
        heads = list(islice(stored, 1))
        if len(fresh):
            heads.append(int(fresh.min()))
        return min(heads, default=None)


class SessionRun:
    """Sessions of one task and epoch: what is merged, emitted and remembered."""

    _log: ColumnLog

    def __init__(
        self,
        work: Work,
        aggregates: Mapping[str, PartialAggregate],
        window: SessionWindows,
        lateness_us: int,
    ) -> None:
        """Take what an epoch begins with."""
        self._uid = work.program.uid
        self._program, self._window = work.program, window
        self._lateness_us, self._aggregates = lateness_us, aggregates
        self._layout, self._reader = work.layout, work.reader
        self._watermark_us = work.info.watermark_us
        self._stored = StoredSessions(work.layout, aggregates)

    def effects(self, work: Work) -> Effects:
        """Return the effects, once everything is merged."""
        work.on_handled()
        return Effects(
            changes=self._log,
            outputs={name: self._table(name) for name in work.outputs},
            timers=TimerHeads(event_us=self._head),
        )

    def merge(self, data: KeyedInput | None) -> bool:
        """Merge records, emit sessions that are over; False if columns cannot."""
        self._timers = _Timers(self._reader, self._watermark_us)
        self._visited = visited = self._visits(data)
        before = self._stored.loaded(visited.payloads)
        whole = before
        if data is not None and data.ids:
            fresh = self._fresh(data)
            merged = self._stored.merged(before.and_also(fresh))
            if merged is None:
                return False
            whole = merged
        reached = first_open_us(self._watermark_us)
        is_over = np.zeros(len(whole), dtype=bool)
        is_kept = ~is_over
        if reached is not None:
            is_over = whole.ends <= reached
            is_kept = whole.ends + self._lateness_us * is_over > reached
        self._given = whole.take(np.flatnonzero(is_over & ~whole.given))
        self._before, self._whole = before, whole
        kept = replace(whole, given=whole.given | is_over).take(np.flatnonzero(is_kept))
        try:
            after = self._stored.normal(kept)
        except (TypeError, ValueError, ArithmeticError):
            return False  # a value does not fit: the loop says whose
        self._log = self._changes(before, after)
        return True

    def _visits(self, data: KeyedInput | None) -> _Visited:
        ids = [] if data is None else data.ids
        keys = [] if data is None else data.keys
        payloads = [] if data is None else data.payloads
        known = set(ids)
        due = {i: k for i, k in self._timers.keys.items() if i not in known}
        if not due:
            return _Visited(ids, keys, payloads, np.arange(len(ids)))
        decode = self._layout.decode_key
        ids = [*ids, *due]
        keys = [*keys, *map(decode, due.values())]
        payloads = [*payloads, *self._reader.get_many(list(due))]
        order = sorted(range(len(ids)), key=ids.__getitem__)
        rank = np.empty(len(ids), dtype=np.int64)
        rank[order] = np.arange(len(ids))
        return _Visited(
            [ids[n] for n in order],
            [keys[n] for n in order],
            [payloads[n] for n in order],
            rank[: len(ids) - len(due)],
        )

    def _fresh(self, data: KeyedInput) -> SessionColumns:
        """Return a session for each record."""
        table = data.table
        assert table is not None
        times = table[TIME].to_numpy()
        gap_us: Any = self._window.gap_us
        if gap_us is None:
            # So that none leaves 64 bits.
            gap_us = np.minimum(table[GAP].to_numpy(), _FOREVER)
        stored = self._stored
        columns = {
            name: Column.of_arrow(table[name], kind, is_numeric=stored.is_numeric[name])
            for name, kind in stored.kinds.items()
        }
        return SessionColumns(
            np.repeat(self._visited.places, np.diff(data.bounds)),
            times,
            # Time has an end, and so have sessions that would go beyond it.
            np.minimum(times + gap_us, END_US),
            np.zeros(len(times), dtype=bool),
            np.ones(len(times), dtype=bool),
            columns,
        )

    # What is remembered

    def _changes(self, before: SessionColumns, after: SessionColumns) -> ColumnLog:
        visited = self._visited
        payloads = self._stored.payloads(after, len(visited.ids))
        changed = np.array(
            [a != b for a, b in zip(payloads, visited.payloads, strict=True)],
            dtype=bool,
        )
        places = np.flatnonzero(changed)
        ids, groups, keys = self._keyed(places)
        return ColumnLog(
            self._layout,
            ids=pa.array(ids, pa.binary()),
            groups=groups,
            keys=keys,
            data=[self._stored.array(after, places, self._uid)],
            payloads=pa.array([payloads[n] for n in places.tolist()], pa.binary()),
            added=visited.payloads.count(None) - payloads.count(None),
            timers=self._changed_timers(before, after),
        )

    def _changed_timers(
        self, before: SessionColumns, after: SessionColumns
    ) -> TimerColumns:
        """Return timers that were set, and those that fired or are no longer wanted."""
        lateness_us = self._lateness_us
        old = before.timers(lateness_us).and_also(self._timers.due(self._visited.ids))
        changed, is_on = old.changed_to(after.timers(lateness_us))
        ids, groups, keys = self._keyed(changed.places)
        every = self._visited.keys
        payloads = [
            encode(every[place]) if on else None
            for place, on in zip(changed.places.tolist(), is_on.tolist(), strict=True)
        ]
        found = TimerColumns(ids, groups, keys, changed.at_us, payloads)
        self._head = self._timers.head(found)
        return found

    def _keyed(
        self, places: np.ndarray
    ) -> tuple[list[bytes], pa.Array, list[pa.Array]]:
        """Return ids, groups and key columns of some of the keys."""
        visited, wanted = self._visited, pa.array(places)
        ids = [visited.ids[n] for n in places.tolist()]
        keys = [column.take(wanted) for column in self._keys]
        return ids, pa.array(visited.groups[places], pa.int32()), keys

    @cached_property
    def _keys(self) -> list[pa.Array]:
        """The key columns of all visited keys."""
        fields, keys = self._program.keys.fields, self._visited.keys
        columns = zip(*keys, strict=True) if keys else [()] * len(fields)
        return [
            state_array(f.type, column, f.name, self._uid)
            for f, column in zip(fields, columns, strict=True)
        ]

    # What is emitted

    def _table(self, name: str) -> pa.Table:
        """Return the rows of an output, with their event time."""
        if name == MAIN:
            return self._rows(self._given)
        changed = self._whole.take(np.flatnonzero(self._whole.changed))
        gone = self._gone()
        is_gone = np.arange(len(gone) + len(changed)) < len(gone)
        table = pa.concat_tables([self._rows(gone, is_bare=True), self._rows(changed)])
        # The last column before the time.
        column = self._program.outputs[name].to_arrow().field(GONE)
        table = table.add_column(table.num_columns - 1, column, pa.array(is_gone))
        places = np.concatenate([gone.places, changed.places])
        return table.take(pa.array(np.argsort(places, kind="stable")))

    def _gone(self) -> SessionColumns:
        """Return sessions as they were before they grew, or became part of others."""
        left = set(self._whole.spans())
        is_gone = [span not in left for span in self._before.spans()]
        return self._before.take(np.flatnonzero(is_gone))

    def _rows(self, sessions: SessionColumns, *, is_bare: bool = False) -> pa.Table:
        """Return the rows of sessions; bare ones have no results."""
        schema, aggregates = self._program.outputs[MAIN], self._aggregates
        size, width = len(sessions), len(schema.fields) - len(aggregates) - 2
        lists = {n: c.as_list() for n, c in sessions.columns.items()}
        nothing = [[None] * size] * len(aggregates)
        results = nothing if is_bare else results_of(aggregates, lists, size)
        times = sessions.begins, sessions.ends
        begins, ends = (pa.array(each, pa.int64()) for each in times)
        arrays = [
            *(c.take(pa.array(sessions.places)) for c in self._keys[:width]),
            *(each.cast(_INSTANT) for each in (begins, ends)),
            *(
                state_array(each.type, column, column_name, self._uid)
                for (column_name, each), column in zip(
                    aggregates.items(), results, strict=True
                )
            ),
        ]
        table = pa.table(arrays, schema=schema.to_arrow())
        # The last instant of the session.
        return table.append_column(TIME, pc.subtract(ends, 1))
