"""The program as frozen nodes; running it is somebody else's concern."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from riverlock.core.hidden_columns import TIME
from riverlock.core.ids import MAIN_REGION
from riverlock.core.user_lines import calling_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.connectors.base.sink import Sink
    from riverlock.connectors.base.source import Source
    from riverlock.core.types import Schema
    from riverlock.operators.windows.window_operator import Gathering
    from riverlock.program.process import KeyedLogic

__all__ = [
    "Connect",
    "EventTime",
    "Keyed",
    "Late",
    "Node",
    "Output",
    "Read",
    "Relational",
    "RowWise",
    "Union",
    "Write",
    "comes_round",
    "declared_behind_keyed",
    "described",
    "event_times_of",
    "inputs_of",
    "operator_times",
    "told_time",
    "upstream",
]


@dataclass(frozen=True, eq=False, kw_only=True)
class Written:
    """Something that the user wrote: errors about it name the line."""

    line: str = field(default_factory=calling_line, repr=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class Read(Written):
    """Reads a source."""

    uid: str
    source: Source
    # Rows that the source could not parse, as a stream of their own.
    reads_bad_rows: bool = False
    # The region that reads it.
    region: str = MAIN_REGION
    # Its rows have left this region, or one behind it, before.
    is_loop: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class EventTime(Written):
    """Declares which column is the event time, and how late it may be.

    Without a column, rows have no time; only the end of the input is known.
    """

    uid: str
    input: Node
    column: str | None
    delay_us: int
    idle_us: int | None = None
    # What of a row moves the watermark, if not its time: SQL text or a Column.
    watermark: Any = None
    # The column that tells partitions of the input apart.
    per: str | None = None
    # The watermark comes with the input, from another region: rows do not move it.
    is_told: bool = False
    # All its rows come round a loop: they neither move time nor hold it back.
    comes_round: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Relational(Written):
    """A stateless DataFrame operation that Spark runs."""

    input: Node
    operation: str  # select, where, with_column, transform, join_static, sql
    arguments: tuple[Any, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class RowWise(Written):
    """A stateless Python function over records."""

    uid: str
    input: Node
    operation: str  # map, flat_map, filter
    function: Callable[[Any], Any]
    output: Schema | None
    on_error: Sink | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Written):
    """All rows of several streams with the same columns."""

    inputs: tuple[Node, ...]
    # As in SQL: columns are known by their place, and have the names of the first.
    by_position: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Connect(Written):
    """Two streams side by side, for one keyed operator; keys pair up in order."""

    left: Node
    right: Node
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Keyed(Written):
    """Keyed, stateful work: a process, or aggregates that become one.

    Where there are both, they do the same: an engine that can combine rows before they
    are exchanged takes the aggregates, others the process.
    """

    uid: str
    input: Node
    keys: tuple[str, ...]
    process: KeyedLogic[Any] | None
    aggregates: Mapping[str, Any] = field(default_factory=dict)
    # Names that variables of the aggregates had in stores of older versions.
    formerly: Mapping[str, str] = field(default_factory=dict)
    broadcast: Node | None = None
    # Its input is connected: the right side is the control input of a process.
    has_control: bool = False
    initial: Any = None
    on_error: Sink | None = None
    visits_all: bool = False
    # Aggregates or functions of windows.
    windows: Gathering | None = None
    # The method of streams that made it; empty: `process`, by the name of its class.
    method: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Output(Written):
    """One of the outputs of keyed (or row-wise) work."""

    input: Keyed | RowWise
    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Late(Written):
    """The records that came too late for all of their windows, or have no time."""

    input: Keyed


@dataclass(frozen=True, eq=False, kw_only=True)
class Write(Written):
    """Hands a stream to a sink."""

    uid: str
    input: Node
    sink: Sink
    # Rows of an epoch take the place of all rows before.
    replaces: bool = False


Node: TypeAlias = (
    Read | EventTime | Relational | RowWise | Union | Connect | Keyed | Output | Late
)


def told_time(node: Node, uid: str, *, comes_round: bool = False) -> EventTime:
    """Return rows of a channel with the event times that they come with."""
    return EventTime(
        uid=uid,
        input=node,
        column=TIME,
        delay_us=0,
        is_told=True,
        comes_round=comes_round,
    )


def upstream(node: Node) -> list[Node]:
    """Return a node and all that its rows come from."""
    found: dict[Node, None] = {node: None}
    for each in inputs_of(node):
        found |= dict.fromkeys(upstream(each))
    return list(found)


def comes_round(node: Node) -> bool:
    """Whether all rows of a node come round a loop."""
    reads = [n for n in upstream(node) if isinstance(n, Read)]
    return all(read.is_loop for read in reads)


def inputs_of(node: Node | Write) -> tuple[Node, ...]:
    """Return the nodes a node reads."""
    match node:
        case Read():
            return ()
        case Union():
            return node.inputs
        case Connect():
            return (node.left, node.right)
        case Keyed():
            others = (node.broadcast,) if node.broadcast is not None else ()
            return (node.input, *others)
        case _:
            return (node.input,)


def declared_behind_keyed(node: Keyed) -> bool:
    """Whether an operator reads outputs of others, and times that are declared here.

    Then only some of its rows move a watermark.
    """
    ways = [node.input]
    has_outputs = has_times = False
    while ways:
        each = ways.pop()
        has_times |= isinstance(each, EventTime)
        is_output = isinstance(each, Output) and isinstance(each.input, Keyed)
        has_outputs |= is_output
        ways += () if is_output else inputs_of(each)
    return has_outputs and has_times


def described(node: Node) -> str:
    """Return the name by which users know a node."""
    match node:
        case Output(input=Keyed() | RowWise()):
            return f"the output of {node.input.uid!r}"
        case Relational() | RowWise():
            return f"the step {node.operation!r}"
        case Read() | EventTime():
            return f"{node.uid!r}"
        case _:
            return f"a {type(node).__name__.lower()}"


def event_times_of(node: Node) -> list[EventTime]:
    """Return the declarations whose rows reach a node, nearest on each way.

    Ways without a time do not hold back the time of others, nor do those round a loop.
    """
    found = list(dict.fromkeys(_declared(node)))
    timed = [t for t in found if t.column is not None]
    return [t for t in timed if not t.comes_round] or timed or found


def _declared(node: Node) -> list[EventTime]:
    if isinstance(node, EventTime) and node.column is not None:
        return [node]
    inputs = (node.input,) if isinstance(node, Keyed) else inputs_of(node)
    below = [t for each in inputs for t in _declared(each)]
    # Where only an end is told, some of the rows may still have times.
    return [node, *below] if isinstance(node, EventTime) else below


def operator_times(node: Keyed) -> list[EventTime]:
    """Return the declarations whose minimum is the watermark of an operator.

    One that waits only for the end of its input goes by that alone.
    """
    if isinstance(node.input, EventTime) and node.input.column is None:
        return [node.input]
    return event_times_of(node)
