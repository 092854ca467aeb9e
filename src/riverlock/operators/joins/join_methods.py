"""What a keyed stream can do with another one: ``connect`` and the joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.operators.joins.connected import ConnectedStreams
from riverlock.operators.joins.interval_join import IntervalJoin
from riverlock.operators.joins.keyed_join import EventTimeJoin, Join, LatestJoin, Lookup
from riverlock.operators.joins.windowed_join import WindowedJoin
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.operators.windows.window_operator import Gathering
from riverlock.program.time_basis import check_event_time, positive_duration

if TYPE_CHECKING:
    from datetime import timedelta

    from riverlock.flow.stream import Stream
    from riverlock.program.windows import TimeWindows

__all__ = ["JoinMethods"]


class JoinMethods(KeyedMethod):
    """The methods of keyed streams that take a second one."""

    def connect(self, other: JoinMethods) -> ConnectedStreams:
        """Put two streams side by side: ``left.connect(right).process(...)``.

        Their keys pair up in order and must have equal types; names may differ.
        """
        self._same_flow(_checked(other), "connect")
        return ConnectedStreams(self, other)

    def join(
        self,
        other: JoinMethods,
        *,
        within: tuple[str | timedelta, str | timedelta] | None = None,
        window: TimeWindows | None = None,
        how: str = "inner",
        uid: str | None = None,
    ) -> Stream:
        """Join records of equal keys whose event times are close to each other.

        With ``within``, a pair is emitted as soon as both records have come. Rows
        without partner (``left``, ``right``, ``full``, ``anti``) are emitted when the
        watermark says that none can come any more; then state is forgotten. Records
        without event time, or at or before the watermark, go to ``.late``.

        With ``window``, partners are records in the same window. All rows of a window
        are emitted when it is over, with its ``window_start`` and ``window_end``; a
        pair that shares several windows is in each. Records without event time, or all
        of whose windows are over, go to ``.late``.

        Args:
            other: The right side, with a key of the same types.
            within: Bounds of the right record's time minus the left one's, such as
                ``("-5 minutes", "10 minutes")``; both included.
            window: Instead: ``rl.tumbling("1 hour")`` or ``rl.sliding(...)``.
            how: ``inner``, ``left``, ``right``, ``full``, ``semi`` or ``anti``.
            uid: Stable name of its state; keep it when the code changes.
        """
        keys = _checked(other)._keys
        if (within is None) == (window is None):
            raise InvalidFlowError(
                "join()",
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
        other: JoinMethods,
        *,
        how: str = "inner",
        valid_for: str | timedelta | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Join each record with the one of ``other`` that was valid at its event time.

        That is the one of the same key with the greatest time at or before the
        record's; of several of one instant, the last to come. Records wait until the
        watermark reaches them, so that the result does not depend on which came first.
        Records without event time, or at or before the watermark, go to ``.late``.

        Args:
            other: The right side, with a key of the same types.
            how: ``inner`` or ``left``.
            valid_for: How long, in event time, a record of ``other`` is valid if none
                replaces it; then it is forgotten. By default it is kept for ever.
            uid: Stable name of its state; keep it when the code changes.
        """
        valid = None if valid_for is None else positive_duration("valid_for", valid_for)
        process = LatestJoin(how, _checked(other)._keys, valid)
        return self._joined("join_latest", other, process, uid)

    def lookup(
        self,
        other: JoinMethods,
        *,
        how: str = "inner",
        ttl: str | timedelta | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Join each record at once with the newest record of ``other`` for its key.

        Newest means last to come: what ``other`` brings in an epoch is seen by all
        records of this stream in the same epoch, and event time plays no part.

        Args:
            other: The right side, with a key of the same types.
            how: ``inner`` or ``left``.
            ttl: Forget a record of ``other`` this long after it came, by the clock. By
                default the newest of each key is kept for ever.
            uid: Stable name of its state; keep it when the code changes.
        """
        kept = None if ttl is None else positive_duration("ttl of lookup", ttl)
        process = Lookup(how, _checked(other)._keys, kept)
        return self._joined("lookup", other, process, uid)

    def _joined(
        self,
        kind: str,
        other: JoinMethods,
        process: Join,
        uid: str | None,
        window: TimeWindows | None = None,
    ) -> Stream:
        connected = self.connect(other).node
        if isinstance(process, EventTimeJoin):
            columns = {"left": self._columns, "right": other._columns}
            for name, node in (("left", connected.left), ("right", connected.right)):
                check_event_time(node, f"{name} side of {kind}", columns[name])
        windows = None if window is None else Gathering(window=window)
        return self._apply(kind, process, uid, input=connected, windows=windows)


def _checked(other: JoinMethods) -> JoinMethods:
    if not isinstance(other, JoinMethods):
        raise InvalidFlowError(
            "connect() or a join",
            expected="a keyed stream",
            found=type(other).__name__,
            hint="key it by what both sides share: .key_by(...)",
        )
    return other
