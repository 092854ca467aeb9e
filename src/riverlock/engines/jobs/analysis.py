"""What Spark knows about the rows of a flow: it analyses frames over empty ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import cloudpickle
from pyspark.sql.types import StructField, StructType

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import GAP, HIDDEN
from riverlock.core.types import Field, Schema, Type
from riverlock.engines.jobs.frames.aggregates import plan_aggregates
from riverlock.engines.jobs.frames.initial_state import initial_frame
from riverlock.engines.jobs.frames.nodes import Frames, Rows, known_columns, visible
from riverlock.engines.jobs.frames.session_gaps import with_gap
from riverlock.program.graph import EventTime, Read, declared_behind_keyed
from riverlock.snapshot.format.records import InputRange
from riverlock.spark.epoch_clock import has_clock
from riverlock.spark.repeatable import is_repeatable
from riverlock.stages.analysis import KeyedRows
from riverlock.stages.stage_tasks import LateRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.operators.shipped import OperatorProgram
    from riverlock.program.graph import Keyed, Node
    from riverlock.program.program import Program
    from riverlock.stages.compiled import CompiledFlow

__all__ = ["SparkAnalysis"]


class SparkAnalysis:
    """Frames over empty ranges; see ``stages.analysis``."""

    evaluates_once = False

    def __init__(
        self, spark: SparkSession, flow: Program, readers: Mapping[str, Reader]
    ) -> None:
        """Ask every source for its beginning."""
        self._spark, self._flow, self._readers = spark, flow, readers
        nothing = {u: r.initial() for u, r in readers.items()}
        self._ranges = {u: InputRange(start=o, end=o) for u, o in nothing.items()}
        self._staged: dict[tuple[str, str], tuple[Schema, list[str]]] = {}
        self._frames = self._make_frames()
        # The same above rows that are there: of a source only its rows are looked at.
        self._above, sources = self._make_frames(), self._make_frames()
        for read in flow.find(Read):
            self._above.share(read, Rows(sources.frame(read).schema))

    def _make_frames(self) -> Frames:
        return Frames(
            self._spark,
            self._readers,
            self._ranges,
            {n.uid: n for n in self._flow.find(EventTime)},
            self._staged,
            {k.uid: LateRows(0, None) for k in self._flow.keyed},
            says_source=any(map(declared_behind_keyed, self._flow.keyed)),
        )

    def columns(self, node: Node) -> Schema:
        """Return the columns that users see."""
        return visible(self._frames.frame(node))

    def known_columns(self, node: Node) -> Schema:
        """Return the same without columns of types that we do not know."""
        return known_columns(self._frames.frame(node))

    def hidden(self, node: Node) -> tuple[str, ...]:
        """Return the names of the hidden columns."""
        return tuple(c for c in self._frames.frame(node).columns if c in HIDDEN)

    def has_clock(self, node: Node) -> bool:
        """Tell whether making its rows asks for the time of day."""
        return has_clock(self._frames.frame(node))

    def is_repeatable(self, node: Node) -> bool:
        """Tell whether its rows, made again of the same input, are surely the same."""
        # Of a source itself its reader knows.
        return isinstance(node, Read) or is_repeatable(self._above.frame(node))

    def has_repeatable_gaps(self, node: Keyed) -> bool:
        """Tell the same of the gaps of an operator's sessions."""
        return is_repeatable(with_gap(self._above.frame(node.input), node))

    def keyed(self, node: Keyed) -> KeyedRows:
        """Return the rows that an operator receives."""
        frame = with_gap(self._frames.frame(node.input), node)
        if not node.aggregates:
            return KeyedRows(columns=_with_gap(frame), has_clock=has_clock(frame))
        combine, aggregates = plan_aggregates(
            frame, node.keys, node.aggregates, node.uid, node.windows
        )
        return KeyedRows(
            columns=_with_gap(combine.apply(frame)),
            has_clock=combine.has_clock(frame),
            combine=combine,
            aggregates=aggregates,
        )

    def initial(self, node: Keyed) -> Schema:
        """Return the columns of an operator's initial state."""
        return visible(initial_frame(self._spark, node))

    def add_output(self, uid: str, name: str, schema: Schema) -> None:
        """Take the columns of an operator's output."""
        self._staged[(uid, name)] = (schema, [])

    def share(self, node: Node) -> StructType:
        """Treat rows of a node as stored from now on; return their columns."""
        frame: DataFrame = self._frames.frame(node)
        fields = [StructField(f.name, f.dataType) for f in frame.schema.fields]
        struct = StructType(fields)
        for frames in (self._frames, self._above):
            frames.share(node, Rows(struct))
        return struct

    def planned(self, compiled: CompiledFlow) -> None:
        """Nothing is left to look at."""

    def shipped(self, program: OperatorProgram) -> bytes:
        """Return a program as bytes.

        Raises:
            InvalidFlowError: It cannot be pickled.
        """
        try:
            return bytes(cloudpickle.dumps(program))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise InvalidFlowError(
                f"process of operator {program.uid!r}",
                expected="a process that can be sent to workers (pickled)",
                found=f"{type(error).__name__}: {error}",
                hint="make connections and locks in open(), not in __init__",
            ) from error


def _with_gap(frame: DataFrame) -> Schema:
    """Return the columns that users see, and the gap of sessions where it differs."""
    columns = visible(frame)
    if GAP not in frame.columns:
        return columns
    return Schema((*columns.fields, Field(GAP, Type("long"))))
