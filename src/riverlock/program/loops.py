"""Loops: streams that are read before it is known what feeds them.

A loop is a channel from a region to itself, or to one before it. What an epoch feeds is
input of a later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.program.graph import EventTime, Read, RowWise, described

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.connectors.channel.ends import LoopSource
    from riverlock.coordinator.cuts.topology import Channel, Topology
    from riverlock.program.graph import Node, Write

__all__ = ["Loop", "check_closed", "check_comes_back", "loop_read_by"]


@dataclass(kw_only=True, eq=False)
class Loop:
    """A loop of a flow.

    Attributes:
        uid: Its name: that of the channel.
        node: What reads it.
        source: The same, as engines see it.
        max_rounds: How often rows may come round while nothing else comes in; None: for
            ever.
        fed: What closes it; None: nothing yet.
    """

    uid: str
    node: Read
    source: LoopSource
    max_rounds: int | None = None
    fed: Write | None = None

    @property
    def feeder(self) -> str:
        """What feeds it, in words."""
        if self.fed is None:
            return "nothing"
        node = self.fed.input
        if isinstance(node, RowWise):
            return f"the step {node.uid!r}"
        return described(node)


def loop_read_by(node: Node | None) -> Read | None:
    """Return what reads a loop, if a stream is one, with or without event time."""
    while isinstance(node, EventTime):
        node = node.input
    return node if isinstance(node, Read) and node.is_loop else None


def check_closed(loops: Iterable[Loop], nodes: Iterable[Node | Write]) -> None:
    """Refuse loops that nothing feeds, or that nothing reads.

    Raises:
        InvalidFlowError: There is one.
    """
    known = set(nodes)
    for loop in loops:
        if loop.fed is None:
            raise InvalidFlowError(
                f"loop {loop.uid!r}",
                expected="a stream that feeds it",
                found="none",
                hint="close it: stream.feed(loop), with what flow.loop() returned",
                line=loop.node.line,
            )
        if loop.node not in known:
            raise InvalidFlowError(
                f"loop {loop.uid!r}",
                expected="a step that reads it",
                found="none: its rows would wait for ever",
                hint="bring its rows in: stream.union(loop)",
                line=loop.node.line,
            )


def check_comes_back(loops: Iterable[Loop], topology: Topology) -> None:
    """Refuse loops that are none: fed by a region from which no row comes back.

    Raises:
        InvalidFlowError: There is one.
    """
    for loop in loops:
        channel = next(c for c in topology.channels if c.name == loop.uid)
        if channel not in topology.circle_of(channel.reader).channels:
            raise _no_loop(loop, channel)


def _no_loop(loop: Loop, channel: Channel) -> InvalidFlowError:
    return InvalidFlowError(
        f"loop {loop.uid!r} of region {channel.reader!r}",
        expected="to be fed by that region, or by one behind it",
        found=f"{loop.feeder}, in region {channel.writer!r}",
        hint=f"no row comes round: write .region({channel.reader!r}) instead of a loop",
        line="" if loop.fed is None else loop.fed.line,
    )
