"""What is behind flows and streams, for those who run, translate, test or draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riverlock.flow.flow import Flow
    from riverlock.flow.stream import Stream
    from riverlock.program.graph import Node
    from riverlock.program.program import Program

__all__ = ["node_of", "program_of"]


def program_of(built: Flow | Stream) -> Program:
    """Return the program of a flow, or of a stream's flow."""
    return built._program


def node_of(stream: Stream) -> Node:
    """Return the node that a stream's rows come from."""
    return stream._node
