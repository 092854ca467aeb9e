"""What a keyed stream can do with another one: ``connect`` and the joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.operators.joins.interval_join import IntervalJoin
from riverlock.operators.joins.keyed_join import EventTimeJoin, Join, LatestJoin, Lookup
from riverlock.operators.joins.windowed_join import WindowedJoin
from riverlock.operators.windows.window_operator import Gathering
from riverlock.program.graph import Keyed
from riverlock.program.time_basis import check_event_time, positive_duration
from riverlock.program.two_inputs import ConnectedStreams

if TYPE_CHECKING:
    from datetime import timedelta

    from riverlock.core.types import Schema
    from riverlock.flow.stream import Stream
    from riverlock.program.windows import TimeWindows

__all__ = ["Joinable"]


class Joinable:
    """The part of ``KeyedStream`` that takes a second stream."""

    stream: Stream
    keys: tuple[str, ...]

    def _keyed(self, node: Keyed, output: Schema | None) -> Stream:
        raise NotImplementedError

    def connect(self, other: Joinable) -> ConnectedStreams:
        """Put two streams side by side: ``left.connect(right).process(...)``.

        Their keys pair up in order and must have equal types; names may differ.
        """
        self.stream._same_flow(_checked(other).stream, "connect")
        return ConnectedStreams(self, other)

    def join(
        self,
        other: Joinable,
        *,
        within: tuple[str | timedelta, str | timedelta] | None = None,
        window: TimeWindows | None = None,
        how: str = "inner",
        uid: str | None = None,
    ) -> Stream:
        """Join records of equal keys whose event times are close to each other.

        With ``within``, pairs are given as soon as both records are there. Rows without
        partner (``left``, ``right``, ``full``, ``anti``) are given when the watermark
        says that none can come any more, and state is forgotten then. Records without
        event time, or at or before the watermark, go to ``.late``.

        With ``window``, partners are records in the same window. All rows of a window
        are given when it is over, with its ``window_start`` and ``window_end``; a pair
        that shares several windows is in each. Records without event time, or all of
        whose windows are over, go to ``.late``.

        Args:
            other: The right side, keyed by the same types.
            within: Bounds of the right record's time minus the left one's, such as
                ``("-5 minutes", "10 minutes")``; both included.
            window: Instead: ``rl.tumbling("1 hour")`` or ``rl.sliding(...)``.
            how: ``inner``, ``left``, ``right``, ``full``, ``semi`` or ``anti``.
            uid: Stable name of its state; keep it when the code changes.
        """
        keys = _checked(other).keys
        if (within is None) == (window is None):
            raise InvalidFlowError(
                "join",
                expected="either within=(lower, upper) or window=rl.tumbling(...)",
                found="none" if within is None else "both",
            )
        process: Join
        if within is not None:
            process = IntervalJoin(how, keys, within)
        else:
            process = WindowedJoin(how, keys, window)
        return self._joined("join", other, process, uid, window)

    def join_latest(
        self,
        other: Joinable,
        *,
        how: str = "inner",
        valid_for: str | timedelta | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Join each record with the one of ``other`` that held at its event time.

        That is the one of the same key with the greatest time at or before the
        record's; of several of one instant, the last to come. Records wait until the
        watermark reaches them, so that the result does not depend on who came first.
        Records without event time, or at or before the watermark, go to
        ``.late``.

        Args:
            other: The right side, keyed by the same types.
            how: ``inner`` or ``left``.
            valid_for: How long, in event time, a record of ``other`` holds if none
                takes its place; it is forgotten then. By default it is kept for ever.
            uid: Stable name of its state; keep it when the code changes.
        """
        valid = None if valid_for is None else positive_duration("valid_for", valid_for)
        process = LatestJoin(how, _checked(other).keys, valid)
        return self._joined("join_latest", other, process, uid)

    def lookup(
        self,
        other: Joinable,
        *,
        how: str = "inner",
        ttl: str | timedelta | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Join each record at once with the newest record of ``other`` for its key.

        Newest by arrival: what ``other`` brings in an epoch is seen by all records of
        this stream in the same epoch, and event time plays no part.

        Args:
            other: The right side, keyed by the same types.
            how: ``inner`` or ``left``.
            ttl: Forget a record of ``other`` so long after it came, by the clock. By
                default the newest of each key is kept for ever.
            uid: Stable name of its state; keep it when the code changes.
        """
        kept = None if ttl is None else positive_duration("ttl of lookup", ttl)
        process = Lookup(how, _checked(other).keys, kept)
        return self._joined("lookup", other, process, uid)

    def _joined(
        self,
        kind: str,
        other: Joinable,
        process: Join,
        uid: str | None,
        window: TimeWindows | None = None,
    ) -> Stream:
        connected = self.connect(other).node
        if isinstance(process, EventTimeJoin):
            columns = {"left": self.stream.schema, "right": other.stream.schema}
            for name, node in (("left", connected.left), ("right", connected.right)):
                check_event_time(node, f"{name} side of {kind}", columns[name])
        flow = self.stream.flow
        node = Keyed(
            uid=flow.take_uid(uid, kind),
            input=connected,
            keys=self.keys,
            process=process,
            on_error=flow.on_error,
            windows=None if window is None else Gathering(window=window),
        )
        return self._keyed(node, None)


def _checked(other: Joinable) -> Joinable:
    if not isinstance(other, Joinable):
        raise InvalidFlowError(
            "other stream of connect or a join",
            expected="a keyed stream",
            found=type(other).__name__,
            hint="key it by what both sides share: .key_by(...)",
        )
    return other
