"""What each uid of a flow stands for, in words that a store can keep and compare.

State and offsets are found by uid. One that the code does not give is made from the
order of the code, and in another order it would be the uid of another node, which would
go on with the state of the first. So what a uid stood for is kept, and compared by the
next start.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from riverlock.flow.graph import (
    Connect,
    EventTime,
    Keyed,
    Late,
    Output,
    Read,
    Relational,
    RowWise,
    Union,
    upstream,
)
from riverlock.snapshot.records import Meaning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.flow.flow import Flow
    from riverlock.flow.graph import Node
    from riverlock.flow.process import Process
    from riverlock.sources.base import Source

__all__ = ["meanings_of", "settings_of"]

_PLAIN = (str, int, float, bytes, type(None), Decimal, date, time, timedelta)
# Spark numbers the columns of a plan anew each time.
_NUMBERS = re.compile(r"#\d+L?")


def meanings_of(flow: Flow) -> dict[str, Meaning]:
    """Return what the uids of sources, event times and operators stand for."""
    words = _Words(flow)
    return {
        node.uid: words.meaning(node)
        for node in flow.nodes
        if isinstance(node, Read | EventTime | Keyed)
    }


def settings_of(process: Process | None) -> str:
    """Return what a process was made with; it learns more when it is compiled."""
    return _digest([_text({} if process is None else vars(process))])


class _Words:
    """Puts the nodes of a flow into words."""

    def __init__(self, flow: Flow) -> None:
        self._generated, self._settings = flow.generated, flow.settings
        self._ways: dict[Node, str] = {}

    def meaning(self, node: Read | EventTime | Keyed) -> Meaning:
        match node:
            case Read(source=source):
                return Meaning(
                    kind="source",
                    what=source.kind,
                    place=_place(source),
                    digest=_digest([_text(getattr(source, "options", {}))]),
                )
            case EventTime():
                return Meaning(
                    kind="event_time",
                    what="event time",
                    place=self._sources(node),
                    digest=_digest([str(node.column), self._way(node.input)]),
                )
            case Keyed():
                return Meaning(
                    kind="operator",
                    what=_work(node),
                    place=self._sources(node),
                    digest=_digest(self._details(node)),
                )

    def _details(self, node: Keyed) -> list[str]:
        """Return all that tells an operator from others of its class and keys."""
        inputs = [node.input, *([] if node.broadcast is None else [node.broadcast])]
        return [
            self._settings.get(node.uid, ""),
            _text(node.aggregates),
            str(node.windows),
            *map(self._way, inputs),
        ]

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
            self._ways[node] = _digest(self._step(node))
        return self._ways[node]

    def _step(self, node: Node) -> list[str]:
        match node:
            case Read():
                return [self._source(node), str(node.reads_bad_rows)]
            case EventTime():
                return [self._way(node.input)]
            case Relational():
                return [node.operation, _text(node.arguments), self._way(node.input)]
            case RowWise():
                return [node.operation, _text(node.function), self._way(node.input)]
            case Union():
                return ["union", *map(self._way, node.inputs)]
            case Connect():
                keys = [*node.left_keys, "and", *node.right_keys]
                return [*keys, self._way(node.left), self._way(node.right)]
            case Output() | Late():
                name = node.name if isinstance(node, Output) else "late rows"
                return [name, self._way(node.input)]
            case Keyed() if node.uid in self._generated:
                return [_work(node), *self._details(node)]
            case Keyed():
                return [node.uid]


def _place(source: Source) -> str:
    return str(getattr(source, "place", ""))


def _work(node: Keyed) -> str:
    """Return what an operator does, and by which columns."""
    work = "agg" if node.process is None else _name(type(node.process))
    return f"{work} by {', '.join(node.keys)}" if node.keys else work


def _name(thing: Any) -> str:
    """Return a name without the module: the same file may be loaded under several."""
    return str(thing.__qualname__).rpartition("<locals>.")[2]


def _text(value: Any) -> str:
    """Return values of a program as a text that is the same in every process."""
    match value:
        case _ if isinstance(value, _PLAIN):
            return repr(value)
        case Mapping():
            return _text([[k, v] for k, v in value.items()])
        case set() | frozenset():
            return str(sorted(map(_text, value)))
        case list() | tuple():
            return str([_text(each) for each in value])
        case type():
            return _name(value)
        case _ if type(value).__module__.startswith(("pyspark.", "py4j.")):
            return _NUMBERS.sub("", str(value))
        case _ if is_dataclass(value):
            return _text(
                [type(value), *(getattr(value, f.name) for f in fields(value))]
            )
        case _:
            return _function(value)


def _function(value: Any) -> str:
    match value:
        case MethodType():
            return f"{_text(value.__self__)}.{value.__name__}"
        case FunctionType():
            cells = [_content(cell) for cell in value.__closure__ or ()]
            defaults = [value.__defaults__, value.__kwdefaults__]
            return _text([_name(value), _code(value.__code__), *cells, *defaults])
        case partial():
            return _text([value.func, value.args, value.keywords])
        case _:
            return _name(type(value))


def _code(code: CodeType) -> list[Any]:
    """Return what a function names and has as constants: that outlasts a new Python."""
    inner = [_code(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return [code.co_varnames, code.co_names, inner]


def _content(cell: Any) -> str:
    try:
        found = cell.cell_contents
    except ValueError:  # not assigned yet
        return ""
    # A function may hold itself.
    return _name(found) if isinstance(found, FunctionType) else _text(found)


def _digest(parts: Iterable[str]) -> str:
    text = "\n".join(parts)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
