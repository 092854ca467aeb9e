"""The stages of a flow, with everything that can be known before the first epoch.

A stage is stateless work, at most one exchange by key group, then keyed Python work.
The jobs engine runs each as one Spark job per epoch. Sinks that read a keyed output
directly are staged inside its tasks; all sinks of any other step share a stage without
keys, and so do stages that must not evaluate a step once more (``sharing``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.change.input_columns import plan_inputs
from riverlock.change.renumbering import plan_renumbering
from riverlock.change.upgrade import Declared, plan_upgrade
from riverlock.coordinator.plan import OperatorPlan
from riverlock.operators.shipped import (
    MAIN,
    OperatorProgram,
)
from riverlock.program.graph import (
    EventTime,
    Keyed,
    Read,
)
from riverlock.program.meaning import meanings_of
from riverlock.snapshot.format.state_files import variables_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.change.input_columns import InputChanges
    from riverlock.change.renumbering import Renumbering
    from riverlock.change.upgrade import Upgrade
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.core.types import Schema
    from riverlock.program.graph import Node
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import Manifest, Meaning, OperatorState
    from riverlock.storage.base import Storage
    from riverlock.worker.event_times import DeclaredTimes
    from riverlock.worker.row_functions import RowFunction
    from riverlock.worker.task import LocalProgram, Targets

__all__ = ["CompiledFlow", "KeyedStage", "WriteStage"]


@dataclass(frozen=True, kw_only=True)
class KeyedStage:
    """Stateless work, an exchange, a process."""

    id: str
    node: Keyed
    program: OperatorProgram
    blob: bytes | LocalProgram
    # What the engine does before the exchange; its own affair.
    combine: Any
    targets: dict[str, Targets]
    event_times: tuple[str, ...]  # declarations whose minimum is the watermark
    # Whether its frame asks for the time of day.
    has_clock: bool = False
    # The source of whose rows each task may read its own: nothing has another key.
    channel: str | None = None
    # Whether all that its frame needs is known before the epoch begins.
    can_read_ahead: bool = False

    @property
    def plan(self) -> OperatorPlan:
        """What the coordinator knows of it."""
        return OperatorPlan(
            stage=self.id,
            keys=self.program.keys.ddl,
            variables=self.program.layout().variables,
            event_times=self.event_times,
            windows=_windows(self.node),
            parameters=self.program.parameters,
        )


@dataclass(frozen=True, kw_only=True)
class WriteStage:
    """Stateless work, done once for all who read it: sinks and later stages."""

    id: str
    node: Node
    # The columns that users see.
    schema: Schema
    targets: dict[str, Targets]
    # The rows that its tasks are given, and user code that they call with them.
    given: Node
    function: RowFunction | None = None
    has_clock: bool = False
    # What the engine needs to read its rows, if later stages do; its own affair.
    stored: Any = None
    # Whose watermarks its rows move, if a channel gets them.
    times: DeclaredTimes | None = None


@dataclass(frozen=True, kw_only=True)
class CompiledFlow:
    """All that a run needs to know of the program."""

    flow: Program
    stages: tuple[KeyedStage | WriteStage, ...]
    event_times: Mapping[str, EventTime]
    # Columns of the outputs that later stages read.
    staged: Mapping[tuple[str, str], Schema]
    # How sinks are used, by uid.
    uses: Mapping[str, SinkUse]
    code: str
    # Of sources, and of what steps of user code are given: DDL by uid.
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def keyed(self) -> list[KeyedStage]:
        """Stages of keyed operators."""
        return [s for s in self.stages if isinstance(s, KeyedStage)]

    @property
    def shared(self) -> list[WriteStage]:
        """Stages whose rows later ones read."""
        writes = [s for s in self.stages if isinstance(s, WriteStage)]
        return [s for s in writes if s.targets[MAIN].is_staged]

    @property
    def meanings(self) -> dict[str, Meaning]:
        """What the uids of the flow stand for."""
        return meanings_of(self.flow)

    def renumbering(self, newest: Manifest) -> Renumbering:
        """Return which generated uids stand for something else than in an epoch."""
        return plan_renumbering(newest, self.meanings, self.flow.generated)

    def inputs(self, newest: Manifest) -> InputChanges:
        """Return how the columns of sources differ from those of an epoch."""
        return plan_inputs(
            newest.columns,
            self.columns,
            sources=[n.uid for n in self.flow.find(Read)],
            retired=self.flow.retired_columns,
            epoch=newest.epoch,
        )

    def upgrade(
        self, operators: Mapping[str, OperatorState], storage: Storage
    ) -> Upgrade:
        """Return what becomes of the operators of a snapshot.

        Raises:
            InvalidConfigError: What the flow says of renamed operators makes no sense.
            SnapshotCorruptedError: A file that had to be looked into is damaged.
        """

        def columns(state: OperatorState) -> frozenset[str]:
            return frozenset[str]().union(
                *(variables_in(storage, file) for file in state.files)
            )

        declared = {
            s.id: Declared(
                layout=s.program.layout(),
                windows=_windows(s.node),
                parameters=s.program.parameters,
            )
            for s in self.keyed
        }
        return plan_upgrade(
            operators,
            declared,
            renamed=self.flow.renames,
            retired=self.flow.retired,
            columns=columns,
        )


def _windows(node: Keyed) -> str | None:
    """Return what must not change of a window while there is state (format §4.1)."""
    if node.windows is None:
        return None
    over = "" if node.process is None else "functions over "
    return f"{over}{node.windows}"
