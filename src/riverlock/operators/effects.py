"""The effects of an operator: everything that one task leaves behind in one epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from riverlock.snapshot.format.records import TimerHeads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from riverlock.state.changelog import EntryLog

__all__ = ["DeadLetter", "Effects"]

# The values of ``shipped.DEAD_SCHEMA``.
DeadLetter: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Effects:
    """What every operator's run returns, and what a worker makes its vote from.

    It is complete: nothing in it reads state or calls user code any more.

    Attributes:
        changes: The entries and timers that changed.
        outputs: The rows of each output that somebody reads, with their event times.
        timers: The earliest timers that are pending when the epoch ends.
        dead: Records that made user code raise, where the flow has a sink for them.
        late: How many records came too late.
    """

    changes: EntryLog
    outputs: Mapping[str, pa.Table]
    timers: TimerHeads = field(default_factory=TimerHeads)
    dead: Sequence[DeadLetter] = ()
    late: int = 0
