"""Windows of one operator, one task, one epoch, column by column.

State has a row of partial aggregates per key and pane; its ids sort by the end of the
pane, so that those that the watermark has passed are found without timers. A window is
given when the watermark passes its end, and again for each epoch that brings records
which are late, but not too late. A pane is forgotten with the last of its windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.hidden_columns import GROUP, ROWS, TIME, WINDOW
from riverlock.core.times import END_US, START_US
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.aggregates.collected import folded
from riverlock.operators.aggregates.merging import (
    Column,
    column_list,
    finished,
    joined_columns,
    merged,
    settled,
    state_array,
    stored_columns,
    stored_rows,
    taken,
)
from riverlock.operators.boundary import aggregator_errors
from riverlock.operators.far_times import refuse_far
from riverlock.operators.shipped import MAIN
from riverlock.operators.task_input import distinct_codes, in_position, key_values
from riverlock.operators.windows.panes import (
    BEGINNING,
    Pane,
    Panes,
    as_table,
    by_end,
    joined,
)
from riverlock.operators.windows.window_aggregate import LONG_KEY, WindowAggregate
from riverlock.state.codec import encode
from riverlock.state.columns.column_log import ColumnLog
from riverlock.state.columns.key_columns import (
    group_column,
    sorted_places,
    window_ends,
    window_id_column,
)
from riverlock.state.columns.packed import unpacked
from riverlock.state.copy.tail import TailReader
from riverlock.state.keys import is_hashed
from riverlock.state.layout import decoder
from riverlock.state.store import EVENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from riverlock.operators.shipped import EpochInfo, OperatorProgram
    from riverlock.program.windows import TimeWindows
    from riverlock.state.layout import StateLayout
    from riverlock.state.store import StateReader

__all__ = ["WindowRun", "late_panes", "pane_ends"]

_INSTANT = pa.timestamp("us", tz="UTC")
_NOTHING = pa.array([], pa.binary())


@dataclass(frozen=True)
class _Rows:
    """Panes of state, or windows: whose, when each ends, and the partial columns."""

    # Of the entry; of a window, those of any entry of its key.
    ids: pa.BinaryArray
    ends: np.ndarray
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.ends)

    def take(self, places: np.ndarray) -> _Rows:
        """Return some of them."""
        some = pa.array(places)
        columns = {name: taken(column, some) for name, column in self.columns.items()}
        return _Rows(self.ids.take(some), self.ends[places], columns)

    def and_also(self, other: _Rows) -> _Rows:
        """Return these and others."""
        return _joined([self, other])


class _Panes:
    """Panes, earliest first: whose rows they have, and the columns of all of them."""

    def __init__(
        self, parts: Sequence[tuple[int, Pane, bool]], keys: pa.BinaryArray
    ) -> None:
        """Take when each ends, its rows, and whether this epoch touched them.

        Args:
            parts: These, in any order; a pane may have rows of both kinds.
            keys: Whom the codes of rows are numbers of.
        """
        parts = sorted(parts, key=lambda part: part[0])
        self.keys = keys
        self.ends = np.array([end for end, _, _ in parts], dtype=np.int64)
        lengths = [len(pane.codes) for _, pane, _ in parts]
        self._bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._are_touched = np.repeat([is_new for _, _, is_new in parts], lengths)
        self._rows = joined([pane for _, pane, _ in parts]) if parts else None

    def between(self, after: int, until: int) -> tuple[Pane, np.ndarray]:
        """Return the rows of panes that end in a span, and which are touched."""
        assert self._rows
        places = np.searchsorted(self.ends, [after, until], side="right")
        low, high = self._bounds[places].tolist()
        table = self._rows.table.slice(low, high - low)
        return Pane(self._rows.codes[low:high], table), self._are_touched[low:high]


class WindowRun:
    """What came of it, as ``Execution`` has it."""

    def __init__(
        self,
        program: OperatorProgram,
        layout: StateLayout,
        reader: StateReader,
        info: EpochInfo,
        table: pa.Table | None,
    ) -> None:
        """Merge the partial rows of the task, and see which windows end."""
        assert isinstance(program.process, WindowAggregate)
        self.uid, self.dead = program.uid, list[tuple[Any, ...]]()
        self._program, self._process = program, program.process
        self._layout, self._reader, self._info = layout, reader, info
        self._window: TimeWindows = program.process.window
        self._memory = (
            reader.memory(Panes) if isinstance(reader, TailReader) else Panes()
        )
        # Instants that are not over: a window is, if it ends until then.
        self._reached = first_open_us(info.watermark_us)
        self._before_us = first_open_us(info.previous_us)
        self._late_at = first_open_us(program.late_at(info))
        self.late_rows = 0
        fresh = None if table is None else self._on_time(table)
        self._before = _NOTHING
        self._touched = (
            self._merged(fresh) if fresh else self._panes(_NOTHING, _NOTHING)
        )
        # Panes that were stored and are no longer needed.
        self._closed = self._panes(_NOTHING, _NOTHING)
        self.log = self._changes()

    # What arrives

    def _on_time(self, table: pa.Table) -> pa.Table | None:
        """Leave out rows of panes that are closed, or that have no time, and count."""
        known = table[WINDOW].is_valid().to_numpy()
        ends = table[WINDOW].fill_null(0).to_numpy()
        limit = self._late_at
        closed_at = None if limit is None else limit - self._process.lateness_us
        is_late, is_used = late_panes(self._window, ends, known, closed_at)
        if is_late.any():
            self.late_rows = pc.sum(table[ROWS].filter(pa.array(is_late))).as_py()
            is_used &= ~is_late
        if not is_used.any():
            return None
        return table if is_used.all() else table.filter(pa.array(is_used))

    def _merged(self, table: pa.Table) -> _Rows:
        """Merge partial rows with the stored ones of their keys and panes."""
        keys = Schema(self._program.keys.fields[1:])
        aggregates = self._process.aggregates
        refuse_far(table, self._program, self._info)
        table = in_position(folded(table, aggregates, keys.names, self.uid))
        wanted = Schema((Field(WINDOW, Type("long")), *keys.fields))
        codes, first = distinct_codes(table, wanted)
        distinct = table.select([GROUP, *wanted.names]).take(pa.array(first))
        groups, ends, *columns = (c.combine_chunks() for c in distinct.columns)
        ids = window_id_column(
            groups, ends.to_numpy(), columns, partial(key_values, distinct, keys)
        )
        order = sorted_places(ids)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        in_order = pa.array(order)
        distinct = distinct.take(in_order)
        ids = ids.take(in_order)
        self._before = self._reader.get_windows(ids)
        old = stored_columns(self._before, self._layout)
        places = rank[codes]
        new: dict[str, Column] = {}
        for merge in self._process.merges:
            new |= merged(merge, table, places, old)
        if LONG_KEY in old:
            new[LONG_KEY] = self._long_keys(ids, distinct, keys)
        new = settled(new, self._layout, self.uid)
        return _Rows(ids, distinct[WINDOW].to_numpy(), new)

    @staticmethod
    def _long_keys(ids: pa.BinaryArray, distinct: pa.Table, keys: Schema) -> Column:
        """Return the keys that their ids do not tell."""
        if not pc.any(pc.equal(pc.binary_length(ids), _HASHED_ID)).as_py():
            return pa.nulls(len(ids), pa.binary())
        rows = zip(*key_values(distinct, keys), strict=True)
        return [
            encode(row) if is_hashed(i[12:]) else None
            for i, row in zip(ids.to_pylist(), rows, strict=True)
        ]

    def _panes(self, ids: pa.BinaryArray, payloads: pa.BinaryArray) -> _Rows:
        return _Rows(ids, window_ends(ids), stored_columns(payloads, self._layout))

    def _stored(self, after_us: int | None, until_us: int) -> _Rows:
        """Return panes that end in a span of time and were not touched."""
        ids, payloads = self._reader.windows(after_us, until_us)
        touched = self._touched
        may_be_known = touched.ends <= until_us
        if after_us is not None:
            may_be_known &= touched.ends > after_us
        if len(ids) and may_be_known.any():
            known = touched.ids.filter(pa.array(may_be_known))
            left = pc.invert(pc.is_in(ids, value_set=known))
            ids, payloads = ids.filter(left), payloads.filter(left)
        return self._panes(ids, payloads)

    # What is given

    def _closing(self) -> _Rows:
        """Return windows that the watermark passed, and that late rows changed."""
        reached, before = self._reached, self._before_us
        window, touched = self._window, self._touched
        if reached is None:
            return _joined([])
        if window.is_tumbling:
            late = touched.take(np.flatnonzero(touched.ends <= reached))
            # Without lateness a window is given and forgotten at once.
            is_once = self._process.lateness_us == 0
            passed = self._closed if is_once else self._stored(before, reached)
            return passed.and_also(late)
        if before is None:
            return self._slid(None, reached)
        found = [self._corrected(before)]
        if window.first_end(before + 1) <= reached:
            found.append(self._slid(before, reached))
        return _joined(found)

    def _slid(self, before: int | None, reached: int) -> _Rows:
        """Return the windows that end between two watermarks."""
        since = BEGINNING if before is None else before - self._window.size_us
        panes = self._between(since, reached)
        ends = _ends_of(self._window, panes.ends)
        is_due = ends <= reached
        if before is not None:
            is_due &= ends > before
        return self._slide(panes, ends[is_due])

    def _corrected(self, before: int) -> _Rows:
        """Return windows that had been given, and that late rows have changed."""
        ends = self._open_ends()
        return self._of_touched(ends[ends <= before])

    def _changed(self) -> _Rows:
        """Return all windows that the records of this epoch belong to."""
        if self._window.is_tumbling:
            return self._touched
        return self._of_touched(self._open_ends())

    def _open_ends(self) -> np.ndarray:
        """Return when the windows of touched panes end that were not closed before."""
        ends, limit = _ends_of(self._window, self._touched.ends), self._late_at
        return ends if limit is None else ends[ends + self._process.lateness_us > limit]

    def _of_touched(self, ends: np.ndarray) -> _Rows:
        """Return the windows of touched panes that end at given instants."""
        if not len(ends):
            return _joined([])
        panes = self._between(int(ends.min()) - self._window.size_us, int(ends.max()))
        return self._slide(panes, ends, only_touched=True)

    def _between(self, after_us: int, until_us: int) -> _Panes:
        """Return all panes that end in a span of time, as they are now."""
        touched, memory, before = self._touched, self._memory, self._before_us
        kept = BEGINNING if before is None else before - self._window.size_us
        span = after_us, until_us
        stored = memory.between(self._reader, self._layout, span, kept)
        is_near = (touched.ends > after_us) & (touched.ends <= until_us)
        near = touched.take(np.flatnonzero(is_near))
        fresh: dict[int, Pane] = {}
        if len(near):
            table = as_table(near.columns, self._layout, self.uid)
            whole = Pane(memory.codes_of(near.ids), table)
            fresh = {end: whole.take(places) for end, places in by_end(near.ends)}
            for end in fresh.keys() & stored.keys():
                stored[end] = stored[end].without(fresh[end].codes)
        parts = [(end, pane, False) for end, pane in stored.items()]
        parts += [(end, pane, True) for end, pane in fresh.items()]
        return _Panes(parts, memory.keys)

    def _slide(
        self, panes: _Panes, ends: np.ndarray, *, only_touched: bool = False
    ) -> _Rows:
        """Merge panes to the windows that end at given instants.

        Args:
            panes: All panes of these windows.
            ends: When the windows end.
            only_touched: Give those windows only that hold a row that is touched.
        """
        if not len(ends):
            return _joined([])
        found = []
        # Results must not depend on which keys a process has seen first.
        in_order = sorted_places(panes.keys)
        for end in ends.tolist():
            rows, are_touched = panes.between(end - self._window.size_us, end)
            codes = rows.codes[are_touched] if only_touched else rows.codes
            is_there = np.zeros(len(in_order), dtype=bool)
            is_there[codes] = True
            there = in_order[is_there[in_order]]
            if not len(there):
                continue
            if only_touched:
                rows = rows.take(np.flatnonzero(is_there[rows.codes]))
            rank = np.zeros(len(in_order), dtype=np.int64)
            rank[there] = np.arange(len(there))
            ids = panes.keys.take(pa.array(there))
            found.append(self._of_window(end, rows.table, rank[rows.codes], ids))
        return _joined(found)

    def _of_window(
        self, end: int, part: pa.Table, places: np.ndarray, ids: pa.BinaryArray
    ) -> _Rows:
        """Merge the panes of all keys in one window.

        Args:
            end: When it ends.
            part: The panes.
            places: Whose they are.
            ids: The keys.
        """
        row, n = self._layout.rows["key"], len(ids)
        old = {
            name: pa.nulls(n, codec.type.to_arrow())
            for name, codec in zip(row.names, row.codecs, strict=True)
        }
        columns: dict[str, Column] = {}
        for merge in self._process.merges:
            columns |= merged(merge, part, places, old)
        if LONG_KEY in old:
            # All rows of a key say the same.
            some = np.empty(n, dtype=np.int64)
            some[places] = np.arange(len(places))
            columns[LONG_KEY] = part[LONG_KEY].take(pa.array(some)).combine_chunks()
        columns = settled(columns, self._layout, self.uid)
        return _Rows(ids, np.full(n, end), columns)

    def table(self, name: str) -> pa.Table:
        """Return the rows of an output, with their event time.

        Raises:
            UserCodeError: An aggregator raised.
        """
        with aggregator_errors(self.uid, self._info.epoch):
            return self._table(name)

    def _table(self, name: str) -> pa.Table:
        windows = self._closing() if name == MAIN else self._changed()
        schema = self._program.outputs[name]
        keys = schema.fields[: len(self._program.keys.fields) - 1]
        ends = pa.array(windows.ends, pa.int64())
        starts = pa.array(windows.ends - self._window.size_us, pa.int64())
        aggregates = self._process.aggregates
        results = finished(aggregates, windows.columns, len(windows))
        arrays = [
            *self._key_arrays(windows, Schema(keys)),
            *(times.cast(_INSTANT) for times in (starts, ends)),
            *(
                state_array(each.type, column, column_name, self.uid)
                for (column_name, each), column in zip(
                    aggregates.items(), results, strict=True
                )
            ),
        ]
        table = pa.table(arrays, schema=schema.to_arrow())
        # The last instant of the window: so that windows of windows line up.
        return table.append_column(TIME, pc.subtract(ends, 1))

    def _key_arrays(self, windows: _Rows, keys: Schema) -> list[pa.Array]:
        if not keys.fields:
            return []
        if not len(windows):
            return [pa.nulls(0, f.type.to_arrow()) for f in keys.fields]
        found = unpacked(windows.ids, [f.type for f in keys.fields], skip=12)
        if found is not None:
            return found
        long_keys = column_list(windows.columns[LONG_KEY])
        rows = self._key_rows(windows.ids.to_pylist(), long_keys)
        columns = zip(*rows, strict=True)
        return [
            state_array(f.type, column, f.name, self.uid)
            for f, column in zip(keys.fields, columns, strict=True)
        ]

    def _key_rows(
        self, ids: Sequence[bytes], long_keys: Sequence[bytes | None]
    ) -> list[tuple[Any, ...]]:
        """Return the keys that ids name, without the window."""
        width = len(self._program.keys.fields) - 1
        # An array of so many values begins like this.
        head = encode((None,) * width)[:-width]
        decode = self._decode_key
        return [
            decode(head + i[12:] if k is None else k)
            for i, k in zip(ids, long_keys, strict=True)
        ]

    @cached_property
    def _decode_key(self) -> Callable[[bytes], tuple[Any, ...]]:
        return decoder(self._layout.key_codecs[1:])

    # What is remembered

    def _changes(self) -> ColumnLog:
        """Return rows of panes that changed, and of those that are no longer needed."""
        touched = self._touched
        gone = np.zeros(len(touched), dtype=bool)
        if self._reached is not None:
            closed_at = self._reached - self._process.lateness_us
            old = self._stored(None, self._window.last_closed_pane(closed_at))
            is_closed = last_ends(self._window, old.ends) <= closed_at
            self._closed = old.take(np.flatnonzero(is_closed))
            gone = last_ends(self._window, touched.ends) <= closed_at
        closed = self._closed
        rows = stored_rows(touched.columns, self._layout) if len(touched) else _NOTHING
        payloads = pc.if_else(pa.array(gone), pa.scalar(None, pa.binary()), rows)
        is_changed = _differ(payloads, self._before)
        added = self._before.null_count - payloads.null_count - len(closed)
        whole = touched.take(np.flatnonzero(is_changed)).and_also(closed)
        payloads = pa.concat_arrays(
            [payloads.filter(pa.array(is_changed)), pa.nulls(len(closed), pa.binary())]
        )
        order = sorted_places(whole.ids)
        return self._logged(whole.take(order), payloads.take(pa.array(order)), added)

    def _logged(self, panes: _Rows, payloads: pa.BinaryArray, added: int) -> ColumnLog:
        row = self._layout.rows["key"]
        keys = Schema(self._program.keys.fields[1:])
        return ColumnLog(
            self._layout,
            ids=panes.ids,
            groups=group_column(panes.ids),
            keys=[
                pa.array(panes.ends, pa.int64()).cast(_INSTANT),
                *self._key_arrays(panes, keys),
            ],
            data=[
                state_array(codec.type, panes.columns[name], name, self.uid)
                for name, codec in zip(row.names, row.codecs, strict=True)
            ],
            payloads=payloads,
            added=added,
        )

    def timer_head(self, kind: int) -> int | None:
        """Return the last instant of the next window that ends."""
        if kind != EVENT:
            return None
        reached = BEGINNING if self._reached is None else self._reached
        window = self._window
        after: int | None = reached - window.size_us
        heads = []
        while after is not None:
            after = self._reader.first_window(after)
            if after is not None and window.last_end(after) > reached:
                heads.append(after)
                break
        later = last_ends(window, self._touched.ends) > reached
        if later.any():
            heads.append(int(self._touched.ends[later].min()))
        soonest = window.first_end(reached + 1)
        ends = [max(window.first_end(h), soonest) for h in heads]
        return min(ends) - 1 if ends else None


# Group, window and a key that is named by its hash.
_HASHED_ID = 2 + 10 + 34


def _joined(parts: Sequence[_Rows]) -> _Rows:
    if not parts:
        return _Rows(_NOTHING, np.array([], dtype=np.int64), {})
    parts = [p for p in parts if len(p)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    columns = {
        name: joined_columns([p.columns[name] for p in parts])
        for name in parts[0].columns
    }
    ids = pa.concat_arrays([p.ids for p in parts])
    return _Rows(ids, np.concatenate([p.ends for p in parts]), columns)


def _differ(one: pa.BinaryArray, other: pa.BinaryArray) -> np.ndarray:
    """Return where columns are not the same; null is the same as null."""
    both = pc.fill_null(pc.not_equal(one, other), False)  # noqa: FBT003 - a value
    found: np.ndarray = np.logical_or(
        both.to_numpy(zero_copy_only=False),
        pc.xor(one.is_null(), other.is_null()).to_numpy(zero_copy_only=False),
    )
    return found


def _first_ends(window: TimeWindows, panes: np.ndarray) -> np.ndarray:
    found: np.ndarray = panes + (window.phase_us - panes) % window.slide_us
    return found


def pane_ends(window: TimeWindows, times: np.ndarray) -> np.ndarray:
    """Return the ends of the panes that instants lie in."""
    found: np.ndarray = times - (times - window.offset_us) % window.pane_us
    return found + window.pane_us


def late_panes(
    window: TimeWindows, panes: np.ndarray, known: np.ndarray, closed_at_us: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return which panes are too late, and which are in any window at all.

    Args:
        window: The windows.
        panes: When the panes end.
        known: Whether each is one; a record without event time is in none, and late.
        closed_at_us: Windows that end until then take no more records.
    """
    last = last_ends(window, panes)
    # Where windows are apart, some panes are in none, and never late.
    is_used = known & (last >= panes)
    # Time has an end: a window beyond it never would be over. Nor does one have a
    # beginning that is before the beginning of time.
    begin = _first_ends(window, panes) - window.size_us
    is_late = ~known | (is_used & ((last > END_US) | (begin < START_US)))
    if closed_at_us is not None:
        is_late |= is_used & (last <= closed_at_us)
    return is_late, is_used


def last_ends(window: TimeWindows, panes: np.ndarray) -> np.ndarray:
    """Return the ends of the last windows that hold panes."""
    latest = panes - window.pane_us + window.size_us
    found: np.ndarray = latest - (latest - window.phase_us) % window.slide_us
    return found


def _ends_of(window: TimeWindows, panes: np.ndarray) -> np.ndarray:
    """Return when the windows end that hold any of some panes, earliest first."""
    distinct = np.unique(panes)
    firsts, lasts = _first_ends(window, distinct), last_ends(window, distinct)
    is_used = firsts <= lasts
    firsts, lasts = firsts[is_used], lasts[is_used]
    if not len(firsts):
        return firsts
    # Windows of panes that lie together overlap: one progression for all of them.
    begins = np.flatnonzero(firsts[1:] > lasts[:-1] + window.slide_us) + 1
    runs = zip(
        firsts[[0, *begins.tolist()]].tolist(),
        lasts[[*(begins - 1).tolist(), -1]].tolist(),
        strict=True,
    )
    return np.concatenate([np.arange(a, b + 1, window.slide_us) for a, b in runs])
