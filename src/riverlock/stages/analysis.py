"""What planning asks of an engine: the rows of a step, before anything runs.

Which stages a flow has is worked out here, the same for every engine. What the rows of
a step look like may need more than the description: expressions have the types that
Spark gives them. So the engine is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.core.types import Schema
    from riverlock.operators.aggregates.partial import PartialAggregate
    from riverlock.operators.shipped import OperatorProgram
    from riverlock.program.graph import Keyed, Node
    from riverlock.stages.compiled import CompiledFlow
    from riverlock.worker.task import LocalProgram

__all__ = ["Analysis", "KeyedRows"]


@dataclass(frozen=True, kw_only=True)
class KeyedRows:
    """The rows that a keyed operator is given.

    Attributes:
        columns: Their columns, with the gap of sessions where it differs.
        has_clock: Whether making them asks for the time of day.
        combine: What the engine does with them before the exchange; its own affair.
        aggregates: How each aggregate is merged and shown, by name; empty: the process
            of the node does the work.
    """

    columns: Schema
    has_clock: bool = False
    combine: Any = None
    aggregates: Mapping[str, PartialAggregate] = field(default_factory=dict)


class Analysis(Protocol):
    """Looks at the steps of one flow; nothing is read from its sources.

    Planning asks in the order of the flow, inputs first, from one thread. It tells the
    columns of each output (``add_output``) before it asks about what reads it, and
    which steps a stage of their own evaluates (``share``) before it asks about those
    that read them.

    Every method raises ``InvalidFlowError`` for a step that makes no sense, or that the
    engine cannot run.
    """

    @property
    def evaluates_once(self) -> bool:
        """Whether all stages of an epoch see rows of a step that is evaluated once.

        No step then needs a stage of its own only so that others see the same rows.
        """
        ...

    def columns(self, node: Node) -> Schema:
        """Return the columns that users see."""
        ...

    def known_columns(self, node: Node) -> Schema:
        """Return the same, but for columns of types that we do not know."""
        ...

    def hidden(self, node: Node) -> tuple[str, ...]:
        """Return the names of the hidden columns."""
        ...

    def has_clock(self, node: Node) -> bool:
        """Tell whether making its rows asks for the time of day."""
        ...

    def is_repeatable(self, node: Node) -> bool:
        """Tell whether its rows, made again of the same input, are surely the same."""
        ...

    def has_repeatable_gaps(self, node: Keyed) -> bool:
        """Tell the same of the gaps of an operator's sessions."""
        ...

    def keyed(self, node: Keyed) -> KeyedRows:
        """Return the rows that an operator is given."""
        ...

    def initial(self, node: Keyed) -> Schema:
        """Return the columns of an operator's initial state."""
        ...

    def add_output(self, uid: str, name: str, schema: Schema) -> None:
        """Take the columns of an operator's output."""
        ...

    def share(self, node: Node) -> Any:
        """Take it that a stage stores the rows of a node for all who read it.

        Returns what the engine needs to read them; its own affair.
        """
        ...

    def shipped(self, program: OperatorProgram) -> bytes | LocalProgram:
        """Return a program as tasks get it.

        Raises:
            InvalidFlowError: It cannot be sent to them.
        """
        ...

    def planned(self, compiled: CompiledFlow) -> None:
        """Take the plan, and refuse what planning has not asked about."""
        ...
