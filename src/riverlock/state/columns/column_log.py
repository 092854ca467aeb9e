"""What a task changed in one epoch, made of columns: a ``ChangeLog`` without a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from riverlock.state.columns.key_columns import sorted_places
from riverlock.state.copy.layers import DELETED, Layer
from riverlock.state.copy.redo import Redo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.state.columns.timer_columns import TimerColumns
    from riverlock.state.layout import StateLayout

__all__ = ["ColumnLog"]


class ColumnLog:
    """Rows of values that were written or deleted, and timers; nothing else."""

    timers: list[tuple[bytes, bytes, bytes | None]]
    expiries: list[bytes]

    def __init__(  # noqa: PLR0913 - the columns of a state file
        self,
        layout: StateLayout,
        *,
        ids: pa.BinaryArray,
        groups: pa.Array,
        keys: Sequence[pa.Array],
        data: Sequence[pa.Array],
        payloads: pa.BinaryArray,
        added: int,
        timers: TimerColumns | None = None,
    ) -> None:
        """Take columns that are sorted by id.

        Args:
            layout: How the state is stored.
            ids: Of the rows that changed, each once.
            groups: Their key groups.
            keys: The key columns.
            data: The values, in the order of the layout.
            payloads: The same as bytes; null for a deleted row.
            added: By how many the number of rows grew.
            timers: Those that were set or removed.
        """
        self._layout, self._ids, self._payloads = layout, ids, payloads
        self._groups, self._keys, self._data = groups, keys, data
        self._timers = timers
        self.timers = [] if timers is None else timers.changes()
        self.expiries = []
        self.added = added

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not len(self._ids) and not self.timers

    def entries(self) -> tuple[list[bytes], list[bytes | None]]:
        """Return the same as lists, as a ``ChangeLog`` has them."""
        ids, payloads = self._columns()
        return ids.to_pylist(), payloads.to_pylist()

    def redo(self) -> Redo:
        """Return the changes in the bytes of a working copy."""
        ids, payloads = self._columns()
        layer = Layer(ids, payloads.fill_null(DELETED))
        return Redo(layer, self.timers, self.expiries)

    def forget(self) -> None:
        """Nothing: no garbage collector looks through columns."""

    def _columns(self) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Return the ids that changed and their payloads, null for those gone."""
        if self._timers is None:
            return self._ids, self._payloads
        ids = pa.array(self._timers.entry_ids, pa.binary())
        payloads = pa.array(self._timers.payloads, pa.binary())
        return (
            pa.concat_arrays([self._ids, ids]),
            pa.concat_arrays([self._payloads, payloads]),
        )

    def table(self) -> pa.Table:
        """Return the changes as a table sorted by id."""
        rows = self._rows()
        if not self.timers:
            return rows
        assert self._timers is not None
        whole = pa.concat_tables([rows, self._timers.table(self._layout)])
        ids = whole["id"].combine_chunks()
        return whole.take(pa.array(sorted_places(ids)))

    def _rows(self) -> pa.Table:
        schema, n = self._layout.arrow, len(self._ids)
        kinds = {f.name: f.type for f in schema}
        gone = self._payloads.is_null()
        return pa.table(
            [
                self._ids,
                pa.repeat(pa.scalar("values"), n),
                self._groups,
                pa.StructArray.from_arrays(self._keys, fields=list(kinds["key"])),
                pa.nulls(n, pa.string()),
                gone,
                pa.nulls(n, kinds["expires_at"]),
                pa.nulls(n, kinds["timer"]),
                pa.StructArray.from_arrays(
                    self._data, fields=list(kinds["data"]), mask=gone
                ),
            ],
            schema=schema,
        )
