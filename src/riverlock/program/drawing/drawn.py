"""From a program to its drawing.

Outputs, connected inputs and the ends of inputs are nodes of a program, but only labels
of arrows in its drawing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.sink import PASSING, place_of
from riverlock.connectors.channel.ends import ChannelSink, ChannelSource
from riverlock.core.times import duration_text
from riverlock.program.drawing.graph_model import Arrow, Box, Graph
from riverlock.program.graph import (
    Connect,
    EventTime,
    Keyed,
    Late,
    Output,
    Read,
    Relational,
    RowWise,
    Union,
    Write,
    inputs_of,
)
from riverlock.program.regions import region_of
from riverlock.program.value_text import name_of
from riverlock.program.windows import CountWindows, SessionWindows, TimeWindows
from riverlock.state.spec import specs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.program.graph import Node
    from riverlock.program.program import Program

__all__ = ["drawn"]

_LONGEST = 48
_LABELS = {"main": "", "dead": "dead letters"}


def drawn(program: Program) -> Graph:
    """Return the drawing of a program."""
    return _Drawing(program).graph()


class _Drawing:
    """Numbers the boxes of a program and finds their arrows."""

    def __init__(self, program: Program) -> None:
        self._program = program
        # What crosses from one region to another is an arrow, not two boxes.
        self._channels = {
            write.uid: write
            for write in program.writes
            if isinstance(write.sink, ChannelSink) and not write.sink.is_back
        }
        shown = [n for n in self._ordered() if self._is_box(n)]
        self._numbers: dict[Any, int] = {}
        for node in shown:
            self._numbers.setdefault(_identity(node), len(self._numbers) + 1)
        self._nodes = {self._numbers[_identity(node)]: node for node in reversed(shown)}

    def _ordered(self) -> list[Node | Write]:
        """Return all nodes, inputs first, also across channels."""
        order: dict[Node | Write, None] = {}

        def walk(node: Node | Write) -> None:
            if node not in order:
                crossed = self._crossed(node)
                for each in (*inputs_of(node), *((crossed.input,) if crossed else ())):
                    walk(each)
                order[node] = None

        for node in self._program.nodes:
            walk(node)
        return list(order)

    def _crossed(self, node: Node | Write) -> Write | None:
        """Return what fills the channel that a node reads, if it reads one."""
        if isinstance(node, Read) and isinstance(node.source, ChannelSource):
            return self._channels.get(node.source.name)
        return None

    def _is_box(self, node: Node | Write) -> bool:
        if self._crossed(node) is not None:
            return False
        if isinstance(node, Write):
            return node.uid not in self._channels
        if isinstance(node, EventTime):
            return node.column is not None and not node.is_told
        return not isinstance(node, Output | Late | Connect)

    def graph(self) -> Graph:
        arrows = tuple(
            Arrow(start=start, end=end, label=label)
            for end, node in sorted(self._nodes.items())
            for start, label in self._inputs(node)
        )
        stages = self._stages(arrows)
        return Graph(
            flow=self._program.name,
            boxes=tuple(
                self._box(number, node, stages.get(number, ()))
                for number, node in sorted(self._nodes.items())
            ),
            arrows=arrows,
        )

    def _inputs(self, node: Node | Write) -> Iterator[tuple[int, str]]:
        match node:
            case Read() | Connect():
                return
            case Union():
                for each in node.inputs:
                    yield self._origin(each)
            case Keyed(input=Connect() as both):
                sides = ("", "control") if node.has_control else ("left", "right")
                for side, each in zip(sides, (both.left, both.right), strict=True):
                    start, label = self._origin(each)
                    yield start, ", ".join(filter(None, (label, side)))
            case _:
                yield self._origin(node.input)
        if isinstance(node, Keyed) and node.broadcast is not None:
            start, label = self._origin(node.broadcast)
            yield start, f"{label}, broadcast" if label else "broadcast"

    def _origin(self, node: Node) -> tuple[int, str]:
        """Return the box that rows come from, and which of its outputs they are."""
        crossed = self._crossed(node)
        if crossed is not None:
            start, label = self._origin(crossed.input)
            return start, ", ".join(filter(None, (label, _channel(crossed))))
        match node:
            case EventTime(is_told=True):
                return self._origin(node.input)
            case Output():
                label = _LABELS.get(node.name, node.name)
                return self._numbers[node.input], label
            case Late():
                return self._numbers[node.input], "late"
            case Read(reads_bad_rows=True):
                return self._numbers[_identity(node)], "bad"
            case EventTime(column=None):
                return self._origin(node.input)
            case _:
                return self._numbers[_identity(node)], ""

    def _stages(self, arrows: tuple[Arrow, ...]) -> dict[int, tuple[int, ...]]:
        """Return the stages that boxes run in.

        A stage ends with an operator and the sinks of its rows, or with sinks of rows
        that no operator has made; all steps before it, up to other operators, are part
        of it.
        """
        found: dict[int, set[int]] = {number: set() for number in self._nodes}
        before: dict[int, list[int]] = {number: [] for number in self._nodes}
        for arrow in arrows:
            ends = self._nodes[arrow.start], self._nodes[arrow.end]
            if len(set(map(region_of, ends))) == 1:
                before[arrow.end].append(arrow.start)
        number = 0
        for end, node in sorted(self._nodes.items()):
            follows = any(isinstance(self._nodes[i], Keyed) for i in before[end])
            if isinstance(node, Keyed) or (isinstance(node, Write) and not follows):
                number += 1
                self._mark(end, number, before, found)
            elif isinstance(node, Write):
                found[end] |= {s for i in before[end] for s in found[i]}
        for write in self._channels.values():
            start, _ = self._origin(write.input)
            if not isinstance(self._nodes[start], Keyed):
                number += 1
                self._mark(start, number, before, found)
        return {box: tuple(sorted(stages)) for box, stages in found.items()}

    def _mark(
        self,
        box: int,
        stage: int,
        before: dict[int, list[int]],
        found: dict[int, set[int]],
    ) -> None:
        found[box].add(stage)
        for each in before[box]:
            if not isinstance(self._nodes[each], Keyed):
                self._mark(each, stage, before, found)

    def _box(self, number: int, node: Any, stages: tuple[int, ...]) -> Box:
        uid = getattr(node, "uid", None)
        kind, title, details = _described(node)
        return Box(
            number=number,
            kind=kind,
            title=title,
            uid=uid,
            is_named=uid not in self._program.generated or not _keeps(node),
            details=tuple(_short(d) for d in details if d),
            state=tuple(_state(node)) if isinstance(node, Keyed) else (),
            stages=stages,
            region=region_of(node),
        )


def _channel(write: Write) -> str:
    """Return what is said of an arrow from one region to another."""
    assert isinstance(write.sink, ChannelSink)
    bound = write.sink.bound
    most = "" if bound is None else f", at most {bound}"
    return f"channel {write.uid}{most}"


def _identity(node: Any) -> Any:
    """Return what makes nodes one box: bad rows are of the same source."""
    return node.uid if isinstance(node, Read) else node


def _described(node: Any) -> tuple[str, str, list[str]]:
    match node:
        case Read():
            return "source", node.source.kind, [str(getattr(node.source, "place", ""))]
        case Write():
            mode = "the whole table, each epoch" if node.replaces else ""
            return "sink", node.sink.kind, [place_of(node.sink), mode]
        case EventTime():
            return "step", f"event time {node.column}", _timing(node)
        case Keyed():
            return "operator", _work(node), [*_keyed(node)]
        case RowWise():
            return "step", node.operation, [name_of(node.function)]
        case Relational():
            texts = [a for a in node.arguments if isinstance(a, str)]
            return "step", node.operation.replace("_", " "), texts
        case _:
            return "step", type(node).__name__.lower(), []


def _timing(node: EventTime) -> list[str]:
    delay = f"delay {duration_text(node.delay_us)}" if node.delay_us else ""
    idle = "" if node.idle_us is None else f"idle after {duration_text(node.idle_us)}"
    return [delay, idle, "" if node.per is None else f"per {node.per}"]


def _keeps(node: Any) -> bool:
    """Whether something is kept under the uid of a node, that should not change."""
    if isinstance(node, Write):
        return node.sink.kind not in PASSING
    return isinstance(node, Read | Keyed)


def _work(node: Keyed) -> str:
    method = node.method.replace("_", " ")
    return method or name_of(type(node.process))


def _keyed(node: Keyed) -> Iterator[str]:
    if node.keys:
        yield f"by {', '.join(node.keys)}"
    if node.windows is not None:
        yield _windows(node.windows.window)
    if node.process is None:
        for name, each in node.aggregates.items():
            yield f"{name} = {each}" if isinstance(each, str) else name


def _windows(window: Any) -> str:
    match window:
        case TimeWindows():
            size = duration_text(window.size_us)
            if window.is_tumbling:
                return f"each {size}"
            return f"{size}, every {duration_text(window.slide_us)}"
        case SessionWindows():
            gap = window.gap_us
            return f"sessions, gap {'by record' if gap is None else duration_text(gap)}"
        case CountWindows():
            return f"each {window.size} records"
        case _:
            return "global window"


def _state(node: Keyed) -> Iterator[str]:
    for name, spec in specs_of(type(node.process)).items():
        variable = spec.variable
        text = variable.type
        if variable.key is not None:
            text = f"{variable.key}, {text}"
        if variable.kind != "value":
            text = f"{variable.kind}<{text}>"
        yield _short(f"{name}: {text}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
