"""What a stream leaves its region by: ``region``, ``feed``, ``publish``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from riverlock.connectors.channel.ends import ChannelSink, ChannelSource, check_feeds
from riverlock.coordinator.bounds import Bound
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.ids import check_name
from riverlock.program.graph import Read, Write, comes_round, described, told_time
from riverlock.program.guarantees import declare_guarantee
from riverlock.program.loops import loop_read_by
from riverlock.program.region_options import Pace, agreed
from riverlock.program.regions import has_time, region_of

if TYPE_CHECKING:
    from datetime import timedelta

    from riverlock.core.guarantees import Guarantee
    from riverlock.core.types import Schema
    from riverlock.flow.stream import Stream
    from riverlock.program.graph import Node
    from riverlock.program.program import Program

__all__ = ["Regional"]


class Regional:
    """The part of ``Stream`` that enters another region, or one once more."""

    _program: Program
    _node: Node
    _schema: Schema | None

    def _next(self, node: Node, schema: Schema | None) -> Stream:
        raise NotImplementedError

    def _same_flow(self, other: object, what: str) -> None:
        raise NotImplementedError

    def _check_has_rows(self) -> None:
        raise NotImplementedError

    def region(  # noqa: PLR0913 - keywords, each with a default
        self,
        name: str,
        *,
        guarantee: Guarantee | None = None,
        uid: str | None = None,
        bound: Bound | None = None,
        parallelism: int | Literal["auto"] | None = None,
        max_rows_per_epoch: int | None = None,
        epoch_target: str | timedelta | None = None,
    ) -> Stream:
        """Continue the stream in another region of the flow.

        A region has epochs, a pace and a recovery of its own. Rows cross over through a
        durable channel: they are there when their epoch is decided, once and in order.
        If the region behind fails or stops, this one goes on, and the channel keeps
        what was not read: without limit, unless there is a ``bound``.

        Args:
            name: The region; several streams may enter the same one.
            guarantee: What its sinks are promised after a failure. ``exactly once``, if
                nothing is said. ``at least once``: rows leave as soon as a task has
                them, where the sink can take them then, and may repeat. ``at most
                once``: rows are handed over once, and after a failure the region goes
                on with the newest input, so rows may be missing. State is right in all
                three. If several streams enter the region, say it at one of them, or
                the same at each.
            uid: Stable name of the channel; keep it when the code changes.
            bound: How much may wait in the channel before this region stops reading.
            parallelism: Tasks per keyed stage of that region.
            max_rows_per_epoch: Rows an epoch of it takes at most.
            epoch_target: How long an epoch of it should take. What is left out of these
                three is as in ``run``; the first stream that enters decides for all.

        Raises:
            InvalidFlowError: The stream is in that region, or another stream enters it
                with other options.
            InvalidConfigError: An option makes no sense.
        """
        check_name("region", name)
        _check_bound(bound)
        program, node = self._program, self._node
        writer = region_of(node)
        if name == writer:
            raise InvalidFlowError(
                f"region({name!r})",
                expected="another region",
                found=f"the region that the stream is in: {writer!r}",
            )
        declare_guarantee(program, name, guarantee)
        pace = Pace(
            parallelism=parallelism,
            max_rows_per_epoch=max_rows_per_epoch,
            epoch_target=epoch_target,
        )
        program.paces[name] = agreed(name, program.paces.get(name), pace)
        channel = program.take_uid(uid, f"to-{name}")
        read = program.take_uid(f"{channel}-read", "channel", of=channel)
        sink = ChannelSink(name=channel, reader=name, bound=bound)
        program.writes.append(Write(uid=channel, input=node, sink=sink))
        is_timed = has_time(node)
        source = ChannelSource(name=channel, writer=writer, has_time=is_timed)
        entered: Node = Read(uid=read, source=source, region=name)
        if is_timed:
            time = program.take_uid(f"{channel}-time", "event_time", of=channel)
            entered = told_time(entered, time, comes_round=comes_round(node))
        return self._next(entered, self._schema)

    def feed(self, loop: Stream) -> None:
        """Close a loop: rows of this stream come round in a later epoch.

        Its columns must be those that the loop was declared with, in any order.

        Args:
            loop: What ``flow.loop()`` returned, with or without ``event_time``.

        Raises:
            InvalidFlowError: It is no loop of this flow, is fed already, or has other
                columns.
        """
        self._same_flow(loop, "feed()")
        program, read = self._program, loop_read_by(loop._node)
        if read is None:
            raise InvalidFlowError(
                "feed()",
                expected="a loop: what flow.loop() returned",
                found=described(loop._node),
            )
        entry = next(e for e in program.loops.values() if e.node is read)
        if entry.fed is not None:
            raise InvalidFlowError(
                f"loop {entry.uid!r}",
                expected="one stream that feeds it",
                found="a second one",
                hint="make one of them: first.union(second).feed(loop)",
            )
        self._check_has_rows()
        declared = entry.source.schema
        if self._schema is not None:
            check_feeds(entry.uid, declared, self._schema)
        sink = ChannelSink(name=entry.uid, reader=read.region, columns=declared)
        entry.fed = Write(uid=entry.uid, input=self._node, sink=sink)
        entry.source.writer = region_of(self._node)
        program.writes.append(entry.fed)

    def publish(self, name: str) -> Stream:
        """Offer the stream to other flows: ``rl.sources.channel(store, name)``.

        The rows of an epoch are in the channel when the epoch is decided. Epochs are
        kept as those of any flow, and for as long as a flow that has begun to read
        them needs them: see ``rl.stores.readers``.

        Args:
            name: Of the channel; keep it when the code changes.

        Raises:
            InvalidFlowError: Something else in the flow has the name.
        """
        program = self._program
        program.take_uid(name, "channel")
        sink = ChannelSink(name=name, reader=None)
        program.writes.append(Write(uid=name, input=self._node, sink=sink))
        return self._next(self._node, self._schema)


def _check_bound(bound: object) -> None:
    if bound is not None and not isinstance(bound, Bound):
        raise InvalidConfigError(
            "region(bound=)",
            expected="such as rl.Bound(rows=1_000_000, age='10 minutes')",
            found=repr(bound),
        )
