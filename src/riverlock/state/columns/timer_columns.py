"""Timers that a task set or removed in one epoch, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from riverlock.state.changelog import KINDS
from riverlock.state.keys import TIMER
from riverlock.state.store import EVENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.state.layout import StateLayout

__all__ = ["TimerColumns"]

_INSTANT = pa.timestamp("us", tz="UTC")
# Kind and instant.
_WIDTH = 9


@dataclass(frozen=True)
class TimerColumns:
    """Timers of event time, each of a key and an instant, none of them twice."""

    # The keys: ids, groups, columns.
    ids: Sequence[bytes]
    groups: pa.Array
    keys: Sequence[pa.Array]
    at_us: np.ndarray
    # The keys as bytes; None for a timer that is gone.
    payloads: Sequence[bytes | None]

    @cached_property
    def _slots(self) -> list[bytes]:
        """Kind and instant of each, so that byte order is time order."""
        matrix = np.full((len(self.at_us), _WIDTH), EVENT, dtype=np.uint8)
        shifted = self.at_us.astype(np.int64).view(np.uint64) + np.uint64(1 << 63)
        matrix[:, 1:] = shifted.astype(">u8").view(np.uint8).reshape(-1, 8)
        raw = matrix.tobytes()
        return [raw[n : n + _WIDTH] for n in range(0, len(raw), _WIDTH)]

    @cached_property
    def entry_ids(self) -> list[bytes]:
        """The ids of their entries."""
        pairs = zip(self.ids, self._slots, strict=True)
        return [key_id + TIMER + slot for key_id, slot in pairs]

    def changes(self) -> list[tuple[bytes, bytes, bytes | None]]:
        """Return them as ``Changes`` has them."""
        return list(zip(self._slots, self.ids, self.payloads, strict=True))

    def table(self, layout: StateLayout) -> pa.Table:
        """Return them as rows of a state file."""
        schema, n = layout.arrow, len(self.ids)
        kinds = {f.name: f.type for f in schema}
        times = pa.array(self.at_us, pa.int64()).cast(_INSTANT)
        names = pa.repeat(pa.scalar(KINDS[EVENT]), n)
        return pa.table(
            [
                pa.array(self.entry_ids, pa.binary()),
                pa.repeat(pa.scalar("timer"), n),
                self.groups,
                pa.StructArray.from_arrays(self.keys, fields=list(kinds["key"])),
                pa.nulls(n, pa.string()),
                pa.array([p is None for p in self.payloads], pa.bool_()),
                pa.nulls(n, kinds["expires_at"]),
                pa.StructArray.from_arrays([names, times], fields=list(kinds["timer"])),
                pa.nulls(n, kinds["data"]),
            ],
            schema=schema,
        )
