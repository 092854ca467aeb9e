"""Which steps of a flow an epoch evaluates once, for all who read them.

Several stages may read one step: sinks, keyed operators, what asks for late records.
Each would evaluate it anew. Where that might give other rows (functions of users,
chance, tables and sources that change meanwhile), a stage of its own evaluates it, and
the others read what it staged. Dead letters of a function come with its results, and
bad rows of a source with its good ones.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.source_reader import Parted
from riverlock.core.errors import InvalidFlowError
from riverlock.program.graph import (
    Keyed,
    Late,
    Output,
    Read,
    Relational,
    RowWise,
    Write,
    inputs_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.program.graph import Node
    from riverlock.program.program import Program
    from riverlock.stages.analysis import Analysis

__all__ = ["Sharing", "WholeRead"]

# Steps whose function, or table, is the user's: called or read by each stage.
_UNSURE = ("transform", "join_static")


class WholeRead(Read):
    """Rows of a source, bad ones too, that a stage reads for both kinds of ``Read``."""


class Sharing:
    """Decides it node by node, inputs first."""

    def __init__(
        self, flow: Program, readers: Mapping[str, Reader], analysis: Analysis
    ) -> None:
        """Count who reads what.

        Args:
            flow: The program.
            readers: Readers by uid of their source.
            analysis: Tells whether a step gives the same rows again.
        """
        self._readers, self._analysis = readers, analysis
        once = analysis.evaluates_once
        self._whole = {} if once else _whole_reads(flow, readers)
        # Inputs first: what is read whole is what its readers stand on.
        self.nodes = nodes = (*self._whole.values(), *flow.nodes)
        self._dead = {
            n.input: n
            for n in nodes
            if isinstance(n, Output) and isinstance(n.input, RowWise)
        }
        self._later = Counter(
            each for n in nodes if not isinstance(n, Write) for each in self._read_by(n)
        )
        self._is_written = {n.input for n in nodes if isinstance(n, Write)}
        self._shared: set[Node] = set()

    def dead_letters(self, node: Node) -> Output | None:
        """Return the dead letters that come with the rows of a node."""
        return self._dead.get(node) if isinstance(node, RowWise) else None

    def has_stage(self, node: Node) -> bool:
        """Tell whether a stage of its own evaluates a node, for all its readers."""
        if isinstance(node, Keyed | Output):
            return False
        if self.dead_letters(node) is not None:
            return True
        if self._analysis.evaluates_once:
            return False
        readings = self._later[node] + (node in self._is_written)
        return readings > 1 and not self._is_sure(node)

    def is_stored(self, node: Node) -> bool:
        """Tell whether the stage of a node stores its rows for later ones."""
        once = self._analysis.evaluates_once
        return self.has_stage(node) and self._later[node] > 0 and not once

    def share(self, node: Node) -> Any:
        """Take it that all read a node from one stage; return what they find."""
        self._shared.add(node)
        return self._analysis.share(node)

    def reads_shared(self, node: Node) -> bool:
        """Tell whether a node needs rows that a stage has evaluated."""
        return node in self._shared or any(map(self.reads_shared, self._read_by(node)))

    def check_late(self, node: Late) -> None:
        """Refuse to tell late records where the rule would be another each time.

        Raises:
            InvalidFlowError: The gap of a session is not known from its record.
        """
        keyed = node.input
        if not self._analysis.has_repeatable_gaps(keyed):
            raise InvalidFlowError(
                f"gap_expr of operator {keyed.uid!r}, whose late records are read",
                expected="an expression that yields the same gap again",
                found="one with functions of users, tables or randomness",
                hint="compute the gap before, with_column('gap', ...)",
            )

    def _is_sure(self, node: Node) -> bool:
        """Tell whether a second evaluation is sure to give the same rows."""
        return self._is_known(node) and self._analysis.is_repeatable(node)

    def _is_known(self, node: Node) -> bool:
        if node in self._shared:
            return True
        match node:
            case Read() if not self._read_by(node):
                return self._readers[node.uid].is_repeatable
            case RowWise():
                return False
            case Relational() if node.operation in _UNSURE:
                return False
            case _:
                return all(map(self._is_known, self._read_by(node)))

    def _read_by(self, node: Node) -> tuple[Node, ...]:
        """Return what is evaluated in the stage that evaluates a node."""
        match node:
            case Late():
                return (node.input.input,)
            case Output():
                return ()  # staged by the tasks of its operator, or function
            case Read() if node.uid in self._whole and not isinstance(node, WholeRead):
                return (self._whole[node.uid],)
            case _:
                return inputs_of(node)


def _whole_reads(flow: Program, readers: Mapping[str, Reader]) -> dict[str, WholeRead]:
    """Return what is to be read once for a stream and its bad rows, by uid."""
    found = {}
    for read in flow.find(Read):
        reader = readers[read.uid]
        is_parted = isinstance(reader, Parted) and reader.has_bad_rows
        if read.reads_bad_rows and is_parted:
            found[read.uid] = WholeRead(uid=read.uid, source=read.source)
    return found
