"""Which steps of a flow an epoch evaluates once, for all who read them.

Several stages may read one step: sinks, keyed operators, what asks for late records.
Each would evaluate it anew. Where that might give other rows (functions of users,
chance, tables and sources that change meanwhile), a stage of its own evaluates it, and
the others read what it staged. Dead letters of a function come with its results, and
bad rows of a source with its good ones.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from riverlock.connectors.base.source_reader import Parted
from riverlock.core.errors import InvalidFlowError
from riverlock.engines.jobs.frames.nodes import Frames, Rows, WholeRead
from riverlock.engines.jobs.frames.session_gaps import with_gap
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
from riverlock.spark.repeatable import is_repeatable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.flow.flow import Flow
    from riverlock.program.graph import Node

__all__ = ["Sharing"]

# Steps whose function, or table, is the user's: called or read by each stage.
_UNSURE = ("transform", "join_static")


class Sharing:
    """Decides it node by node, inputs first."""

    def __init__(
        self,
        flow: Flow,
        readers: Mapping[str, Reader],
        make_frames: Callable[[], Frames],
    ) -> None:
        """Count who reads what.

        Args:
            flow: The program.
            readers: Readers by uid of their source.
            make_frames: Makes frames of empty ranges.
        """
        self._readers = readers
        self._whole = _whole_reads(flow, readers)
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
        # Only what lies above sources is looked at.
        self._frames, sources = make_frames(), make_frames()
        reads = [n for n in nodes if isinstance(n, Read)]
        for read in reads:
            self._frames.share(read, Rows(sources.frame(read).schema))

    def dead_letters(self, node: Node) -> Output | None:
        """Return the dead letters that come with the rows of a node."""
        return self._dead.get(node) if isinstance(node, RowWise) else None

    def is_read_later(self, node: Node) -> bool:
        """Tell whether anything but sinks reads a node."""
        return self._later[node] > 0

    def has_stage(self, node: Node) -> bool:
        """Tell whether a stage of its own evaluates a node, for all its readers."""
        if isinstance(node, Keyed | Output):
            return False
        if self.dead_letters(node) is not None:
            return True
        readings = self._later[node] + (node in self._is_written)
        return readings > 1 and not self._is_sure(node)

    def share(self, node: Node, frame: DataFrame) -> Rows:
        """Take it that all read a node from one stage; returns what they find."""
        fields = [StructField(f.name, f.dataType) for f in frame.schema.fields]
        rows = Rows(StructType(fields))
        self._shared.add(node)
        self._frames.share(node, rows)
        return rows

    def reads_shared(self, node: Node) -> bool:
        """Tell whether a node needs rows that a stage has evaluated."""
        return node in self._shared or any(map(self.reads_shared, self._read_by(node)))

    def check_late(self, node: Late) -> None:
        """Refuse to tell late records where the rule would be another each time.

        Raises:
            InvalidFlowError: The gap of a session is not known from its record.
        """
        keyed = node.input
        if not is_repeatable(with_gap(self._frames.frame(keyed.input), keyed)):
            raise InvalidFlowError(
                f"gap_expr of operator {keyed.uid!r}, whose late records are read",
                expected="an expression that gives the same gap again",
                found="one with functions of users, tables or chance",
                hint="compute the gap before, with_column('gap', ...)",
            )

    def _is_sure(self, node: Node) -> bool:
        """Tell whether a second evaluation is sure to give the same rows."""
        return self._is_known(node) and is_repeatable(self._frames.frame(node))

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


def _whole_reads(flow: Flow, readers: Mapping[str, Reader]) -> dict[str, WholeRead]:
    """Return what is to be read once for a stream and its bad rows, by uid."""
    found = {}
    for read in flow.find(Read):
        reader = readers[read.uid]
        is_parted = isinstance(reader, Parted) and reader.has_bad_rows
        if read.reads_bad_rows and is_parted:
            found[read.uid] = WholeRead(uid=read.uid, source=read.source)
    return found
