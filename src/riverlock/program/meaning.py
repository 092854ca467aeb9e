"""What each uid of a flow stands for, in words that a store can keep and compare.

State and offsets are found by uid. A uid that the code does not give is made from the
order of the code; in another order it would be the uid of another node, which would
continue with the state of the first. So a store keeps what a uid stood for, and the
next start compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.connectors.base.sink import PASSING, place_of
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
    upstream,
)
from riverlock.program.value_text import RECIPE, digest_of, name_of, text_of
from riverlock.snapshot.format.records import CHANNEL, Meaning

if TYPE_CHECKING:
    from riverlock.connectors.base.source import Source
    from riverlock.program.graph import Node
    from riverlock.program.process import KeyedLogic
    from riverlock.program.program import Program

__all__ = ["meanings_of", "settings_of"]


def meanings_of(flow: Program) -> dict[str, Meaning]:
    """Return what the uids of sources, event times, operators and sinks stand for.

    Sinks of which nothing outlasts the process are left out.
    """
    words = _Words(flow)
    return {
        node.uid: msgspec.structs.replace(words.meaning(node), recipe=RECIPE)
        for node in flow.nodes
        if isinstance(node, Read | EventTime | Keyed)
        or (isinstance(node, Write) and node.sink.kind not in PASSING)
    }


def settings_of(process: KeyedLogic[Any] | None) -> str:
    """Return what a process was made with; it learns more when it is compiled."""
    return digest_of([text_of({} if process is None else vars(process))])


class _Words:
    """Puts the nodes of a flow into words."""

    def __init__(self, flow: Program) -> None:
        self._generated, self._settings = flow.generated, flow.settings
        self._ways: dict[Node, str] = {}

    def meaning(self, node: Read | EventTime | Keyed | Write) -> Meaning:
        match node:
            case Read(source=source):
                return Meaning(
                    kind="source",
                    what=source.kind,
                    place=_place(source),
                    digest=digest_of([text_of(getattr(source, "options", {}))]),
                )
            case EventTime():
                return Meaning(
                    kind="event_time",
                    what="event time",
                    place=self._sources(node),
                    digest=digest_of([str(node.column)]),
                    way=self._way(node.input),
                )
            case Keyed():
                return Meaning(
                    kind="operator",
                    what=_work(node),
                    place=self._sources(node),
                    digest=digest_of(self._details(node)),
                    way=digest_of(self._inputs(node)),
                )
            case Write():
                return self._sink(node)

    def _sink(self, node: Write) -> Meaning:
        """Return a sink by its place; else by what it receives, and from whom.

        Several channels may lead to one place, a region.
        """
        sink = node.sink
        meaning = Meaning(kind="sink", what=sink.kind, place=place_of(sink))
        if meaning.place and sink.kind != CHANNEL:
            return meaning
        function = text_of(getattr(sink, "function", None))
        return msgspec.structs.replace(
            meaning,
            digest=digest_of([name_of(type(sink)), function]),
            way=self._way(node.input),
        )

    def _details(self, node: Keyed) -> list[str]:
        """Return what distinguishes an operator from others of its class and keys."""
        settings = self._settings.get(node.uid, "")
        return [settings, text_of(node.aggregates), str(node.windows)]

    def _inputs(self, node: Keyed) -> list[str]:
        inputs = [node.input, *([] if node.broadcast is None else [node.broadcast])]
        return [self._way(each) for each in inputs]

    def _sources(self, node: Node) -> str:
        reads = [n for n in upstream(node) if isinstance(n, Read)]
        return ", ".join(sorted({self._source(read) for read in reads}))

    def _source(self, node: Read) -> str:
        """Return a source by its name, or by what it is if nobody has named it."""
        if node.uid not in self._generated:
            return node.uid
        return f"{node.source.kind} {_place(node.source)}".rstrip()

    def _way(self, node: Node) -> str:
        """Return how rows come to a node, from sources or from other operators."""
        if node not in self._ways:
            self._ways[node] = digest_of(self._step(node))
        return self._ways[node]

    def _step(self, node: Node) -> list[str]:
        match node:
            case Read():
                return [self._source(node), str(node.reads_bad_rows)]
            case EventTime():
                return [self._way(node.input)]
            case Relational():
                return [node.operation, text_of(node.arguments), self._way(node.input)]
            case RowWise():
                return [node.operation, text_of(node.function), self._way(node.input)]
            case Union():
                return ["union", *map(self._way, node.inputs)]
            case Connect():
                keys = [*node.left_keys, "and", *node.right_keys]
                return [*keys, self._way(node.left), self._way(node.right)]
            case Output() | Late():
                name = node.name if isinstance(node, Output) else "late rows"
                return [name, self._way(node.input)]
            case Keyed() if node.uid in self._generated:
                return [_work(node), *self._details(node), *self._inputs(node)]
            case Keyed():
                return [node.uid]


def _place(source: Source) -> str:
    return str(getattr(source, "place", ""))


def _work(node: Keyed) -> str:
    """Return what an operator does, and by which columns."""
    work = "agg" if node.process is None else name_of(type(node.process))
    return f"{work} by {', '.join(node.keys)}" if node.keys else work
