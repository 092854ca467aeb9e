"""Which channels are read by a keyed operator at once, and by which columns.

The writer then keeps rows of the channel by key group, and a task of the operator reads
its own: nothing is exchanged. Writer and reader go by the same program, and agree
through the store: a file says by which columns its rows stand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from riverlock.connectors.channel.ends import ChannelSource, LoopSource
from riverlock.program.graph import (
    EventTime,
    Keyed,
    Read,
    Relational,
    RowWise,
    inputs_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.program.graph import Node, Write
    from riverlock.program.program import Program

__all__ = ["channel_keys", "read_at_once"]

_NAME = re.compile(r"\w+")


def read_at_once(node: Keyed) -> Read | None:
    """Return the channel whose rows an operator is given, each under its own key.

    On the way rows may be left out, but none may get another key, nor go anywhere else:
    functions of users could do either, and so could expressions with a call.
    """
    found = node.input
    while not isinstance(found, Read):
        if not _keeps_keys(found, node.keys):
            return None
        assert isinstance(found, EventTime | Relational | RowWise)
        found = found.input
    is_channel = isinstance(found.source, ChannelSource | LoopSource)
    return found if is_channel and node.keys else None


def _keeps_keys(node: Node, keys: tuple[str, ...]) -> bool:
    match node:
        case EventTime():
            return True
        case RowWise():
            return node.operation == "filter" and node.on_error is None
        case Relational(operation="where", arguments=(str(condition),)):
            return "(" not in condition
        case Relational(operation="select", arguments=columns):
            are_names = all(isinstance(c, str) and _NAME.fullmatch(c) for c in columns)
            return are_names and set(keys) <= set(columns)
        case Relational(operation="with_column", arguments=(name, str(value))):
            return name not in keys and "(" not in value
        case _:
            return False


def channel_keys(program: Program) -> Mapping[str, tuple[str, ...]]:
    """Return by which columns all that reads a channel is keyed at once, by name."""
    found: dict[Read, set[tuple[str, ...]]] = {}
    for keyed in program.keyed:
        at_once = read_at_once(keyed)
        for read in _reads_of(keyed):
            keys = keyed.keys if read is at_once else ()
            found.setdefault(read, set()).add(keys)
    for write in program.writes:
        for read in _reads_of(write):
            found.setdefault(read, set()).add(())
    return {
        read.source.name: next(iter(keys))
        for read, keys in found.items()
        if isinstance(read.source, ChannelSource | LoopSource)
        and len(keys) == 1
        and () not in keys
    }


def _reads_of(root: Keyed | Write) -> Iterable[Read]:
    """Yield what a root reads that no operator before it has read for it."""
    ways = list(inputs_of(root))
    while ways:
        node = ways.pop()
        if isinstance(node, Read):
            yield node
        elif not isinstance(node, Keyed):
            ways += inputs_of(node)
