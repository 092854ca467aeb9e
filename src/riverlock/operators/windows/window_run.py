"""Windows of one operator, one task, one epoch, column by column.

State has a row of partial aggregates per key and pane; its ids sort by the end of the
pane, so that those that the watermark has passed are found without timers. A window
emits when the watermark passes its end, and again in each epoch that brings records
which are late, but not too late. A pane is forgotten with the last of its windows.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.hidden_columns import GROUP, ROWS, TIME, WINDOW
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.aggregates.collected import folded
from riverlock.operators.aggregates.merging import (
    Column,
    column_list,
    finished,
    merged,
    settled,
    state_array,
    stored_columns,
    stored_rows,
)
from riverlock.operators.effects import Effects
from riverlock.operators.far_times import refuse_far
from riverlock.operators.shipped import MAIN
from riverlock.operators.task_input import distinct_codes, in_position, key_values
from riverlock.operators.windows.lateness import late_panes
from riverlock.operators.windows.pane_times import ends_of
from riverlock.operators.windows.panes import (
    BEGINNING,
    Pane,
    Panes,
    as_table,
    by_end,
)
from riverlock.operators.windows.window_columns import LONG_KEY
from riverlock.operators.windows.window_rows import (
    NO_IDS,
    JoinedPanes,
    WindowRows,
    joined_rows,
)
from riverlock.program.lateness import closed_at_us
from riverlock.snapshot.format.records import TimerHeads
from riverlock.state.codec import encode
from riverlock.state.columns.column_log import ColumnLog
from riverlock.state.columns.key_columns import (
    group_column,
    ordered_id_column,
    ordinals_of,
    sorted_places,
)
from riverlock.state.columns.packed import unpacked
from riverlock.state.keys import is_hashed
from riverlock.state.layout import decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.operators.base import Work
    from riverlock.operators.windows.window_aggregate import WindowAggregate
    from riverlock.program.windows import TimeWindows

__all__ = ["WindowRun"]

_INSTANT = pa.timestamp("us", tz="UTC")


class WindowRun:
    """Windows of one task and epoch: what is merged, emitted and remembered."""

    def __init__(self, work: Work, process: WindowAggregate) -> None:
        """Merge the partial rows of the task, and find which windows end.

        Raises:
            AggregatorError: A user's aggregator raised.
        """
        program, reader, info = work.program, work.reader, work.info
        self._uid = program.uid
        self._program, self._process = program, process
        self._layout, self._reader, self._info = work.layout, reader, info
        self._window: TimeWindows = process.window
        self._memory = work.memories.of(Panes)
        # Instants that are not over: a window is, if it ends until then.
        self._reached = first_open_us(info.watermark_us)
        self._before_us = first_open_us(info.previous_us)
        self._late_at = first_open_us(program.late_at(info))
        self._late_rows = 0
        fresh = None if work.table is None else self._on_time(work.table)
        self._before = NO_IDS
        self._touched = self._merged(fresh) if fresh else self._panes(NO_IDS, NO_IDS)
        # Panes that were stored and are no longer needed.
        self._closed = self._panes(NO_IDS, NO_IDS)
        self._log = self._changes()

    def effects(self, work: Work) -> Effects:
        """Return the effects of a windowed operator for one task and epoch.

        Raises:
            AggregatorError: A user's aggregator raised.
        """
        work.on_handled()
        return Effects(
            changes=self._log,
            outputs={name: self._table(name) for name in work.outputs},
            timers=TimerHeads(event_us=self._timer_head()),
            late=self._late_rows,
        )

    # What arrives

    def _on_time(self, table: pa.Table) -> pa.Table | None:
        """Leave out rows of panes that are closed, or that have no time, and count."""
        known = table[WINDOW].is_valid().to_numpy()
        ends = table[WINDOW].fill_null(0).to_numpy()
        watermark_us = self._program.late_at(self._info)
        closed_at = closed_at_us(watermark_us, self._process.lateness_us)
        is_late, is_used = late_panes(self._window, ends, known, closed_at)
        if is_late.any():
            self._late_rows = pc.sum(table[ROWS].filter(pa.array(is_late))).as_py()
            is_used &= ~is_late
        if not is_used.any():
            return None
        return table if is_used.all() else table.filter(pa.array(is_used))

    def _merged(self, table: pa.Table) -> WindowRows:
        """Merge partial rows with the stored ones of their keys and panes."""
        keys = Schema(self._program.keys.fields[1:])
        aggregates = self._process.aggregates
        refuse_far(table, self._program, self._info)
        table = in_position(folded(table, aggregates, keys.names, self._uid))
        wanted = Schema((Field(WINDOW, Type("long")), *keys.fields))
        codes, first = distinct_codes(table, wanted)
        distinct = table.select([GROUP, *wanted.names]).take(pa.array(first))
        groups, ends, *columns = (c.combine_chunks() for c in distinct.columns)
        ids = ordered_id_column(
            groups, ends.to_numpy(), columns, partial(key_values, distinct, keys)
        )
        order = sorted_places(ids)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        in_order = pa.array(order)
        distinct = distinct.take(in_order)
        ids = ids.take(in_order)
        self._before = self._reader.get_ordered(ids)
        old = stored_columns(self._before, self._layout)
        places = rank[codes]
        new: dict[str, Column] = {}
        for merge in self._process.merges:
            new |= merged(merge, table, places, old)
        if LONG_KEY in old:
            new[LONG_KEY] = self._long_keys(ids, distinct, keys)
        new = settled(new, self._layout, self._uid)
        return WindowRows(ids, distinct[WINDOW].to_numpy(), new)

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

    def _panes(self, ids: pa.BinaryArray, payloads: pa.BinaryArray) -> WindowRows:
        return WindowRows(ids, ordinals_of(ids), stored_columns(payloads, self._layout))

    def _stored(self, after_us: int | None, until_us: int) -> WindowRows:
        """Return panes that end in a span of time and were not touched."""
        ids, payloads = self._reader.span(after_us, until_us)
        touched = self._touched
        may_be_known = touched.ends <= until_us
        if after_us is not None:
            may_be_known &= touched.ends > after_us
        if len(ids) and may_be_known.any():
            known = touched.ids.filter(pa.array(may_be_known))
            left = pc.invert(pc.is_in(ids, value_set=known))
            ids, payloads = ids.filter(left), payloads.filter(left)
        return self._panes(ids, payloads)

    # What is emitted

    def _closing(self) -> WindowRows:
        """Return windows that the watermark passed, and that late rows changed."""
        reached, before = self._reached, self._before_us
        window, touched = self._window, self._touched
        if reached is None:
            return joined_rows([])
        if window.is_tumbling:
            late = touched.take(np.flatnonzero(touched.ends <= reached))
            # Without lateness a window emits and is forgotten at once.
            is_once = self._process.lateness_us == 0
            passed = self._closed if is_once else self._stored(before, reached)
            return passed.and_also(late)
        if before is None:
            return self._slid(None, reached)
        found = [self._corrected(before)]
        if window.first_end(before + 1) <= reached:
            found.append(self._slid(before, reached))
        return joined_rows(found)

    def _slid(self, before: int | None, reached: int) -> WindowRows:
        """Return the windows that end between two watermarks."""
        since = BEGINNING if before is None else before - self._window.size_us
        panes = self._between(since, reached)
        ends = ends_of(self._window, panes.ends)
        is_due = ends <= reached
        if before is not None:
            is_due &= ends > before
        return self._slide(panes, ends[is_due])

    def _corrected(self, before: int) -> WindowRows:
        """Return windows that had been given, and that late rows have changed."""
        ends = self._open_ends()
        return self._of_touched(ends[ends <= before])

    def _changed(self) -> WindowRows:
        """Return all windows that the records of this epoch belong to."""
        if self._window.is_tumbling:
            return self._touched
        return self._of_touched(self._open_ends())

    def _open_ends(self) -> np.ndarray:
        """Return when the windows of touched panes end that were not closed before."""
        ends, limit = ends_of(self._window, self._touched.ends), self._late_at
        return ends if limit is None else ends[ends + self._process.lateness_us > limit]

    def _of_touched(self, ends: np.ndarray) -> WindowRows:
        """Return the windows of touched panes that end at given instants."""
        if not len(ends):
            return joined_rows([])
        panes = self._between(int(ends.min()) - self._window.size_us, int(ends.max()))
        return self._slide(panes, ends, only_touched=True)

    def _between(self, after_us: int, until_us: int) -> JoinedPanes:
        """Return all panes that end in a span of time, as they are now."""
        touched, memory, before = self._touched, self._memory, self._before_us
        kept = BEGINNING if before is None else before - self._window.size_us
        span = after_us, until_us
        stored = memory.between(self._reader, self._layout, span, kept)
        is_near = (touched.ends > after_us) & (touched.ends <= until_us)
        near = touched.take(np.flatnonzero(is_near))
        fresh: dict[int, Pane] = {}
        if len(near):
            table = as_table(near.columns, self._layout, self._uid)
            whole = Pane(memory.codes_of(near.ids), table)
            fresh = {end: whole.take(places) for end, places in by_end(near.ends)}
            for end in fresh.keys() & stored.keys():
                stored[end] = stored[end].without(fresh[end].codes)
        parts = [(end, pane, False) for end, pane in stored.items()]
        parts += [(end, pane, True) for end, pane in fresh.items()]
        return JoinedPanes(parts, memory.keys)

    def _slide(
        self, panes: JoinedPanes, ends: np.ndarray, *, only_touched: bool = False
    ) -> WindowRows:
        """Merge panes to the windows that end at given instants.

        Args:
            panes: All panes of these windows.
            ends: When the windows end.
            only_touched: Give those windows only that hold a row that is touched.
        """
        if not len(ends):
            return joined_rows([])
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
        return joined_rows(found)

    def _of_window(
        self, end: int, part: pa.Table, places: np.ndarray, ids: pa.BinaryArray
    ) -> WindowRows:
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
        columns = settled(columns, self._layout, self._uid)
        return WindowRows(ids, np.full(n, end), columns)

    def _table(self, name: str) -> pa.Table:
        """Return the rows of an output, with their event time."""
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
                state_array(each.type, column, column_name, self._uid)
                for (column_name, each), column in zip(
                    aggregates.items(), results, strict=True
                )
            ),
        ]
        table = pa.table(arrays, schema=schema.to_arrow())
        # The last instant of the window: so that windows of windows line up.
        return table.append_column(TIME, pc.subtract(ends, 1))

    def _key_arrays(self, windows: WindowRows, keys: Schema) -> list[pa.Array]:
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
            state_array(f.type, column, f.name, self._uid)
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
            is_closed = self._window.last_end(old.ends) <= closed_at
            self._closed = old.take(np.flatnonzero(is_closed))
            gone = self._window.last_end(touched.ends) <= closed_at
        closed = self._closed
        rows = stored_rows(touched.columns, self._layout) if len(touched) else NO_IDS
        payloads = pc.if_else(pa.array(gone), pa.scalar(None, pa.binary()), rows)
        is_changed = _differ(payloads, self._before)
        added = self._before.null_count - payloads.null_count - len(closed)
        whole = touched.take(np.flatnonzero(is_changed)).and_also(closed)
        payloads = pa.concat_arrays(
            [payloads.filter(pa.array(is_changed)), pa.nulls(len(closed), pa.binary())]
        )
        order = sorted_places(whole.ids)
        return self._logged(whole.take(order), payloads.take(pa.array(order)), added)

    def _logged(
        self, panes: WindowRows, payloads: pa.BinaryArray, added: int
    ) -> ColumnLog:
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
                state_array(codec.type, panes.columns[name], name, self._uid)
                for name, codec in zip(row.names, row.codecs, strict=True)
            ],
            payloads=payloads,
            added=added,
        )

    def _timer_head(self) -> int | None:
        """Return the last instant of the next window that ends."""
        reached = BEGINNING if self._reached is None else self._reached
        window = self._window
        after: int | None = reached - window.size_us
        heads = []
        while after is not None:
            after = self._reader.first_ordinal(after)
            if after is not None and window.last_end(after) > reached:
                heads.append(after)
                break
        later = window.last_end(self._touched.ends) > reached
        if later.any():
            heads.append(int(self._touched.ends[later].min()))
        soonest = window.first_end(reached + 1)
        ends = [max(window.first_end(h), soonest) for h in heads]
        return min(ends) - 1 if ends else None


# Group, window and a key that is named by its hash.
_HASHED_ID = 2 + 10 + 34


def _differ(one: pa.BinaryArray, other: pa.BinaryArray) -> np.ndarray:
    """Return where columns are not the same; null is the same as null."""
    both = pc.fill_null(pc.not_equal(one, other), False)  # noqa: FBT003 - a value
    found: np.ndarray = np.logical_or(
        both.to_numpy(zero_copy_only=False),
        pc.xor(one.is_null(), other.is_null()).to_numpy(zero_copy_only=False),
    )
    return found
