"""Chooses what an epoch reads and what time it is."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.coordinator.epoch import PlannedInputs
from riverlock.runtime.watermarks import operator_watermark
from riverlock.snapshot.records import InputRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.core.clock import Clock
    from riverlock.flow.graph import EventTime
    from riverlock.runtime.admission import Admission
    from riverlock.snapshot.records import Manifest
    from riverlock.sources.reader import Reader

__all__ = ["Planner"]


@dataclass
class Planner:
    """Plans epochs of one run.

    Attributes:
        readers: Sources by uid.
        clock: Where processing time comes from.
        admission: How much an epoch may take.
        operators: Event-time declarations that reach each keyed operator.
        stops_at_end: ``available_now``: take what is there when the run starts.
    """

    readers: Mapping[str, Reader]
    clock: Clock
    admission: Admission
    operators: Mapping[str, tuple[EventTime, ...]]
    stops_at_end: bool
    _latest: dict[str, Any] = field(default_factory=dict)
    _begins: dict[str, Any] = field(default_factory=dict)
    lag_rows: dict[str, int | None] = field(default_factory=dict)

    def plan(self, parent: Manifest | None) -> PlannedInputs | None:
        """Return the plan of the next epoch, or None if there is nothing to do.

        Raises:
            SourceError: A source cannot tell where it is.
        """
        started_us = self.clock.now_us()
        inputs = {uid: self._range(uid, parent) for uid in self.readers}
        # Processing time never runs backwards, whatever the clock does.
        now_us = max(started_us, 0 if parent is None else parent.now_us)
        has_rows = any(r.start != r.end for r in inputs.values())
        if not has_rows and not self._is_timer_due(parent, now_us):
            return None
        return PlannedInputs(
            inputs=inputs,
            watermarks={} if parent is None else parent.watermarks,
            now_us=now_us,
            seed=random.SystemRandom().getrandbits(63),
            started_us=started_us,
        )

    def _initial(self, uid: str) -> Any:
        """Ask once: a source that counts from now must not begin anew each time."""
        if uid not in self._begins:
            self._begins[uid] = self.readers[uid].initial()
        return self._begins[uid]

    def _range(self, uid: str, parent: Manifest | None) -> InputRange:
        reader = self.readers[uid]
        known = None if parent is None else parent.inputs.get(uid)
        start = self._initial(uid) if known is None else known.end
        if not self.stops_at_end or uid not in self._latest:
            self._latest[uid] = reader.latest(start)
        latest = self._latest[uid]
        end = reader.advance(start, latest, self.admission.rows)
        self.lag_rows[uid] = reader.rows_between(end, latest)
        rows = reader.rows_between(start, end)
        return InputRange(start=start, end=end, rows=rows)

    def _is_timer_due(self, parent: Manifest | None, now_us: int) -> bool:
        if parent is None:
            return False
        for uid, declared in self.operators.items():
            state = parent.operators.get(uid)
            if state is None:
                continue
            mark = operator_watermark(declared, parent.watermarks, now_us)
            heads = state.timers
            if heads.processing_us is not None and heads.processing_us <= now_us:
                return True
            is_known = heads.event_us is not None and mark is not None
            if is_known and heads.event_us <= mark:  # type: ignore[operator]
                return True
        return False

    def learn(self, rows: int, took_us: int) -> dict[str, float]:
        """Learn from an epoch that was committed; returns what readers noticed."""
        self.admission.learn(rows, took_us)
        noticed: dict[str, float] = {}
        for reader in self.readers.values():
            for name, value in reader.observed(rows).items():
                noticed[name] = noticed.get(name, 0) + value
        return noticed
