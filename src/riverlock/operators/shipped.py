"""An operator as it travels to the workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.core.hidden_columns import TIME
from riverlock.operators.base import UPDATES
from riverlock.program.params import params_of
from riverlock.state.layout import StateLayout
from riverlock.state.spec import specs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.core.types import Schema
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.program.process import KeyedLogic
    from riverlock.snapshot.format.records import Parameter

__all__ = [
    "DEAD",
    "DEAD_SCHEMA",
    "LATE_ROWS",
    "MAIN",
    "UPDATES",
    "EpochInfo",
    "OperatorProgram",
]

MAIN = "main"
DEAD = "dead"
# The metric that counts records which came too late.
LATE_ROWS = "late_rows"
DEAD_SCHEMA = (
    "operator string, key string, epoch bigint, error string, line string,"
    " record string"
)


@dataclass(frozen=True, kw_only=True)
class OperatorProgram:
    """A process with everything that was resolved when the flow was built."""

    uid: str
    process: KeyedLogic[OperatorContext]
    keys: Schema
    input: Schema
    outputs: dict[str, Schema]  # main, then side outputs by name
    broadcast: Schema | None = None
    initial: Schema | None = None
    # update_state_by_key: visit every stored key in every epoch
    visits_all: bool = False
    # Poison records go to the dead-letter output instead of failing the epoch.
    has_dead_letters: bool = False
    # Event-time declarations by number, as the SOURCE column refers to them.
    event_times: tuple[str, ...] = ()
    # The hidden column that moves watermarks.
    time_column: str = TIME
    # Whether any event time is declared before it: else its timers never fire.
    has_event_time: bool = True
    # Reads rows of other keyed operators, which come before the epoch's watermark does.
    follows_keyed: bool = False
    # Rows of the right side go to ``on_control``.
    has_control: bool = False
    # The text of ``on_event``, if all records go there and it is known.
    source: str | None = None

    def late_at(self, info: EpochInfo) -> int | None:
        """Return up to which instant records of an epoch are late."""
        return info.previous_us if self.follows_keyed else info.watermark_us

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters that the process declares, as manifests carry them."""
        declared = params_of(type(self.process))
        return {name: param.record for name, param in declared.items()}

    def layout(self) -> StateLayout:
        """Return how the state of the process is stored."""
        return StateLayout(self.keys, specs_of(type(self.process)))


@dataclass(frozen=True, kw_only=True)
class EpochInfo:
    """What is the same for all tasks of an epoch."""

    epoch: int
    now_us: int
    seed: int
    watermark_us: int | None = None
    # The watermark of the operator in the epoch before.
    previous_us: int | None = None
    # Of the operator: what is stored of the values in force.
    parameters: Mapping[str, Any] = field(default_factory=dict)
