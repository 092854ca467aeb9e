"""Timers of a task and epoch: which are due, and what has become of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from riverlock.snapshot.format.records import TimerHeads
from riverlock.state.store import EVENT, PROCESSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.operators.shipped import EpochInfo
    from riverlock.state.changelog import ChangeLog
    from riverlock.state.store import StateReader

__all__ = ["Due", "KeyTimers"]

# Timers by key id: when, of which kind, and the key as bytes.
Due: TypeAlias = dict[bytes, list[tuple[int, int, bytes]]]
_FOREVER = 1 << 62


class KeyTimers:
    """The timers of all keys of a task, in the turn of one key after the other."""

    def __init__(
        self,
        ctx: OperatorContext,
        reader: StateReader,
        log: ChangeLog,
        info: EpochInfo,
    ) -> None:
        """Take where timers are stored, changed and logged."""
        self._ctx, self._reader, self._log = ctx, reader, log
        # Up to when they are due, by kind.
        self._limits = (info.watermark_us, info.now_us)
        # What has become of timers in this epoch, for the heads of the queue.
        self._gone: set[tuple[int, int, bytes]] = set()
        self._set: dict[int, list[int]] = {EVENT: [], PROCESSING: []}
        # Timers of the current key that are due but wait for the next epoch.
        self.deferred: set[tuple[int, int]] = set()

    def due(self) -> Due:
        """Return stored timers that are due, by key id."""
        due: Due = {}
        for kind in (EVENT, PROCESSING):
            limit = self._limits[kind]
            if limit is not None:
                for at, key_id, payload in self._reader.due_timers(kind, limit):
                    due.setdefault(key_id, []).append((at, kind, payload))
        return due

    def newly_due(self) -> list[tuple[int, int]]:
        """Return due timers that were set in this turn, earliest first."""
        return sorted(self.due_of(self._ctx.timer_changes))

    def due_of(
        self, timers: Mapping[tuple[int, int], bool]
    ) -> Iterator[tuple[int, int]]:
        """Yield the timers that are set and due, but for those of the next epoch."""
        for (kind, at), is_on in timers.items():
            limit = self._limits[kind]
            is_due = is_on and limit is not None and at <= limit
            if is_due and (at, kind) not in self.deferred:
                yield at, kind

    def record(self, at: tuple[bytes, int, tuple[Any, ...]]) -> None:
        """Log what the turn of a key has set and removed."""
        for (kind, when), is_on in sorted(self._ctx.timer_changes.items()):
            self._log.timer(at, kind, when, on=is_on)
            if is_on:
                self._set[kind].append(when)
                self._gone.discard((kind, when, at[0]))
            else:
                self._gone.add((kind, when, at[0]))
        self._ctx.timer_changes.clear()

    def heads(self) -> TimerHeads:
        """Return the earliest timers that are pending after this epoch."""
        return TimerHeads(
            event_us=self._head(EVENT), processing_us=self._head(PROCESSING)
        )

    def _head(self, kind: int) -> int | None:
        fresh = min(self._set[kind], default=None)
        for at, key_id, _ in self._reader.due_timers(kind, _FOREVER):
            if (kind, at, key_id) not in self._gone:
                return at if fresh is None else min(at, fresh)
        return fresh
