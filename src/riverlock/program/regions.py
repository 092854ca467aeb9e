"""The regions of a program: parts that have epochs, a pace and a recovery of their own.

Regions are joined by channels. What crosses from one to the other ends in a
``ChannelSink`` there and begins with a ``ChannelSource`` here, so that each region is a
whole program by itself.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from riverlock.connectors.channel.ends import (
    ChannelSink,
    JoinedChannel,
    key_columns,
)
from riverlock.coordinator.cuts.topology import Channel, Topology
from riverlock.coordinator.plan import ChannelPlan
from riverlock.core.errors import InvalidFlowError
from riverlock.core.ids import MAIN_REGION
from riverlock.program.channel_keys import channel_keys
from riverlock.program.graph import (
    EventTime,
    Keyed,
    Late,
    Output,
    Read,
    inputs_of,
    upstream,
)
from riverlock.program.loops import check_closed, check_comes_back
from riverlock.snapshot.format.records import (
    JOINED_FEATURE,
    REGIONS_FEATURE,
    ChannelColumns,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.sink import SinkUse
    from riverlock.core.types import Schema
    from riverlock.program.graph import Node, Write
    from riverlock.program.program import Program

__all__ = [
    "Told",
    "channel_columns",
    "channel_plans",
    "features_of",
    "has_time",
    "is_joined",
    "part_of",
    "region_of",
    "regions_of",
    "told_by",
    "topology_of",
]


def region_of(node: Node | Write) -> str:
    """Return the region that a node runs in.

    Raises:
        InvalidFlowError: Its inputs are in different regions.
    """
    if isinstance(node, Read):
        return node.region
    found = list(dict.fromkeys(region_of(each) for each in inputs_of(node)))
    if len(found) > 1:
        loops = [n for each in inputs_of(node) for n in upstream(each) if _is_loop(n)]
        hint = f"bring the others there first: .region({found[0]!r})"
        if loops:
            hint += "; a loop enters the region that flow.loop(region=...) names"
        raise InvalidFlowError(
            "streams of different regions",
            expected="inputs in one region",
            found=" and ".join(map(repr, found)),
            hint=hint,
            line=node.line,
        )
    return found[0]


def _is_loop(node: Node) -> bool:
    return isinstance(node, Read) and node.is_loop


def regions_of(program: Program) -> tuple[str, ...]:
    """Return the regions of a program, those that others read first.

    Raises:
        InvalidFlowError: A loop is not closed, or regions read each other without one.
    """
    check_closed(program.loops.values(), program.nodes)
    before: dict[str, set[str]] = {}
    roots: list[Node | Write] = [*program.keyed, *program.writes]
    for node in roots:
        before.setdefault(region_of(node), set())
    for write in program.writes:
        sink = write.sink
        if isinstance(sink, ChannelSink) and not sink.is_back and sink.reader:
            before.setdefault(sink.reader, set()).add(region_of(write))
    try:
        return tuple(TopologicalSorter(before).static_order()) or (MAIN_REGION,)
    except CycleError as error:
        raise InvalidFlowError(
            "regions that read each other",
            expected="a loop to be declared where its rows come back",
            found=" -> ".join(reversed(error.args[1])),
            hint="begin with again = flow.loop(...), and end with stream.feed(again)",
        ) from error


def topology_of(program: Program) -> Topology:
    """Return the regions of a program, and the channels between them.

    Raises:
        InvalidFlowError: A loop is none, or regions read each other without one.
    """
    found = Topology(
        regions=regions_of(program),
        channels=tuple(
            Channel(
                name=w.uid,
                writer=region_of(w),
                reader=w.sink.reader,
                is_back=w.sink.is_back,
            )
            for w in program.writes
            if isinstance(w.sink, ChannelSink) and w.sink.reader is not None
        ),
    )
    check_comes_back(program.loops.values(), found)
    return found


def is_joined(program: Program) -> bool:
    """Tell whether a flow shares channels with other flows."""
    published = [
        isinstance(w.sink, ChannelSink) and w.sink.reader is None
        for w in program.writes
    ]
    read = [isinstance(r.source, JoinedChannel) for r in program.find(Read)]
    return any(published) or any(read)


def features_of(part: Program) -> tuple[str, ...]:
    """Return what readers of a store must know because of the regions of its flow."""
    regions = (REGIONS_FEATURE,) if part.is_part else ()
    return (*regions, JOINED_FEATURE) if part.is_joined else regions


def part_of(program: Program, region: str) -> Program:
    """Return the program of one region.

    Raises:
        InvalidFlowError: There is no such region, or regions read each other.
    """
    known = topology_of(program).regions
    if region not in known:
        raise InvalidFlowError(
            f"region {region!r}",
            expected=f"one of {', '.join(map(repr, known))}",
            found=repr(region),
        )
    part = copy.copy(program)
    part.region, part.is_part = region, len(known) > 1 or bool(program.loops)
    part.is_joined = is_joined(program)
    part.channel_keys = channel_keys(program)
    part.loops = {u: e for u, e in program.loops.items() if e.node.region == region}
    part.keyed = [n for n in program.keyed if region_of(n) == region]
    part.writes = [w for w in program.writes if region_of(w) == region]
    return part


def channel_columns(program: Program, uses: Mapping[str, SinkUse]) -> dict[str, Schema]:
    """Return the columns of the channels that a region fills, by name."""
    writes = [w for w in program.writes if isinstance(w.sink, ChannelSink)]
    return {w.uid: uses[w.uid].schema for w in writes}


def channel_plans(
    program: Program, columns: Mapping[str, Schema]
) -> dict[str, ChannelPlan]:
    """Return what manifests of a region say of the channels that it fills, by name."""
    found = {}
    for write in program.writes:
        if isinstance(write.sink, ChannelSink):
            told = told_by(write.input)
            is_back = write.sink.is_back
            given = columns[write.uid]
            keys = key_columns(given, program.channel_keys.get(write.uid, ()))
            found[write.uid] = ChannelPlan(
                # What comes round does not hold time back.
                operators=() if is_back else told.operators,
                event_times=() if is_back else told.declared,
                is_back=is_back,
                columns=ChannelColumns(
                    ddl=given.ddl,
                    has_time=has_time(write.input),
                    keys="" if keys is None else keys.ddl,
                ),
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the watermark of a channel follows from: the least of all these.

    Attributes:
        operators: Operators whose rows it has.
        declared: Event-time declarations whose rows it has otherwise.
    """

    operators: tuple[str, ...]
    declared: tuple[str, ...]


def told_by(node: Node) -> Told:
    """Return what the watermark of a node's rows follows from."""
    operators: dict[str, None] = {}
    declared: dict[str, None] = {}
    ways = [node]
    while ways:
        each = ways.pop()
        match each:
            case Output(input=Keyed() as keyed) | Late(input=keyed):
                if has_time(keyed):
                    operators[keyed.uid] = None
            case EventTime() if each.column is not None:
                if not each.comes_round:
                    declared[each.uid] = None
            case _:
                ways += inputs_of(each)
    return Told(operators=tuple(operators), declared=tuple(declared))


def has_time(node: Node) -> bool:
    """Tell whether rows of a node have event times."""
    if isinstance(node, EventTime) and node.column is not None:
        return True
    return any(map(has_time, inputs_of(node)))
