"""The end of inputs without event time: the one instant that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.program.graph import EventTime, Keyed, Read, inputs_of, upstream

if TYPE_CHECKING:
    from riverlock.program.graph import Node
    from riverlock.program.program import Program

__all__ = ["is_bounded", "with_end"]


def is_bounded(node: Node) -> bool:
    """Whether all sources of a node end."""
    reads = [n for n in upstream(node) if isinstance(n, Read)]
    return all(getattr(read.source, "bounded", False) for read in reads)


def with_end(flow: Program, node: Node, uid: str) -> Node:
    """Let an operator know when its inputs have ended, with or without event time.

    Args:
        flow: The flow.
        node: What the operator reads.
        uid: Of the operator.
    """
    if _has_time(node):
        return node
    taken = flow.take_uid(f"{uid}-end", "end", of=uid)
    return EventTime(uid=taken, input=node, column=None, delay_us=0)


def _has_time(node: Node) -> bool:
    """Whether there is an event time on all ways to a node."""
    if isinstance(node, EventTime):
        return True
    inputs = (node.input,) if isinstance(node, Keyed) else inputs_of(node)
    return bool(inputs) and all(_has_time(each) for each in inputs)
