"""What a task changed in one epoch, made of columns: a ``ChangeLog`` without a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.state.layout import StateLayout

__all__ = ["ColumnLog"]


class ColumnLog:
    """Rows of values that were written or deleted; nothing else."""

    timers: list[tuple[bytes, bytes, bytes | None]]
    expiries: list[bytes]

    def __init__(  # noqa: PLR0913 - the columns of a state file
        self,
        layout: StateLayout,
        *,
        ids: Sequence[bytes],
        groups: pa.Array,
        keys: Sequence[pa.Array],
        data: Sequence[pa.Array],
        payloads: Sequence[bytes | None],
        added: int,
    ) -> None:
        """Take columns that are sorted by id.

        Args:
            layout: How the state is stored.
            ids: Of the rows that changed, each once.
            groups: Their key groups.
            keys: The key columns.
            data: The values, in the order of the layout.
            payloads: The same as bytes; None for a row that is gone.
            added: How many rows there are more than before.
        """
        self._layout, self._ids, self._payloads = layout, ids, payloads
        self._groups, self._keys, self._data = groups, keys, data
        self.timers, self.expiries = [], []
        self.added = added

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not self._ids

    def entries(self) -> tuple[list[bytes], list[bytes | None]]:
        """Return the ids that changed and their payloads, None for those gone."""
        return list(self._ids), list(self._payloads)

    def table(self) -> pa.Table:
        """Return the changes as a table sorted by id."""
        schema, n = self._layout.arrow, len(self._ids)
        kinds = {f.name: f.type for f in schema}
        gone = pa.array([p is None for p in self._payloads], pa.bool_())
        return pa.table(
            [
                pa.array(self._ids, pa.binary()),
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
