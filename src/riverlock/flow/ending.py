"""The end of inputs that have no event time: the one instant that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.flow.graph import EventTime, Keyed, inputs_of

if TYPE_CHECKING:
    from riverlock.flow.flow import Flow
    from riverlock.flow.graph import Node

__all__ = ["with_end"]


def with_end(flow: Flow, node: Node, uid: str) -> Node:
    """Let an operator know when its inputs have ended, with or without event time.

    Args:
        flow: The flow.
        node: What the operator reads.
        uid: Of the operator.
    """
    if _has_time(node):
        return node
    taken = flow.take_uid(f"{uid}-end", "end")
    return EventTime(uid=taken, input=node, column=None, delay_us=0)


def _has_time(node: Node) -> bool:
    """Whether there is an event time on all ways to a node."""
    if isinstance(node, EventTime):
        return True
    inputs = (node.input,) if isinstance(node, Keyed) else inputs_of(node)
    return bool(inputs) and all(_has_time(each) for each in inputs)
