"""Operators that are given what Spark makes of records, not the records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from riverlock.core.clock import ManualClock
from riverlock.core.times import from_micros
from riverlock.operators.effects import Effects
from riverlock.operators.shipped import OperatorProgram
from riverlock.testing.harness import Harness
from riverlock.testing.inputs import OneInput


class PreparedOperator(Harness):
    """An operator over partial aggregates, in epochs."""

    def __init__(self, program: OperatorProgram) -> None:
        super().__init__(program, ManualClock(), OneInput(None), 0, 1)

    def play(self, prepared: pa.Table, watermark_us: int | None) -> None:
        """Run an epoch."""
        if watermark_us is not None:
            self.watermark = from_micros(watermark_us)
        self._prepared = prepared
        self._run([prepared] if prepared.num_rows else [])

    @property
    def entries(self) -> int:
        """How many entries of state there are."""
        return len(list(self._store.scan(b"")))

    def _table(self, records: list[Any]) -> pa.Table:
        return self._prepared

    def _commit(self, effects: Effects) -> None:
        # Without the way by files, which other tests take.
        self._store.apply(effects.changes.redo().changes(), self._version())
