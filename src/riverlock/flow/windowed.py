"""Streams in windows: what is computed from the records in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.keywords import told_methods
from riverlock.flow.other_streams import Helpful
from riverlock.operators.aggregates.aggregator import named_aggregates
from riverlock.operators.by_key.top import Ranking
from riverlock.operators.windows.sliding_reduce import SlidingReduce
from riverlock.operators.windows.window_contents import Fold, Kept
from riverlock.operators.windows.window_functions import WindowApply, WindowReduce
from riverlock.operators.windows.window_top import WindowTop
from riverlock.program.graph import Keyed
from riverlock.program.input_end import is_bounded, with_end
from riverlock.program.signatures import check_function
from riverlock.program.time_basis import check_event_time
from riverlock.program.windows import TIMED, GlobalWindow, SessionWindows, TimeWindows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.core.types import SchemaLike
    from riverlock.flow.stream import Stream
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.windows.window_operator import Gathering

__all__ = ["WindowedStream"]


@told_methods
class WindowedStream(Helpful):
    """A stream whose records lie in windows, of event time or of a number."""

    def __init__(
        self, stream: Stream, keys: tuple[str, ...], windows: Gathering
    ) -> None:
        """Made by ``window``."""
        self._stream, self._keys, self._windows = stream, keys, windows
        if isinstance(windows.window, TIMED):
            check_event_time(stream._node, "window", stream._schema)
        is_endless = isinstance(windows.window, GlobalWindow)
        if is_endless and not windows.is_early and not is_bounded(stream._node):
            raise InvalidFlowError(
                "global_window()",
                expected="a trigger or a bounded source",
                found="neither: it would never emit",
                hint="window(rl.global_window(), trigger=rl.early(count=1000))",
            )

    def agg(
        self,
        aggregates: Mapping[str, Any] | None = None,
        *,
        uid: str | None = None,
        **named: Any,
    ) -> Stream:
        """Aggregate each window: ``agg(n="count(*)", total=F.sum("amount"))``.

        Emits the key columns, ``window_start``, ``window_end`` (for count windows
        ``first_record``, ``last_record``), then the aggregates: once when the watermark
        passes the end of the window, and again whenever records come that are late by
        no more than ``lateness``. Later records go to ``.late``. With ``write(sink,
        mode="update")`` a sink gets every change.
        """
        every = named_aggregates(aggregates, named)
        return self._keyed("window", uid, process=None, aggregates=every)

    def reduce(
        self,
        function: Callable[[Any, Any], Any],
        *,
        inverse: Callable[[Any, Any], Any] | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Fold the records of each window: ``function(old, new)`` returns a record.

        It must be associative: panes are folded first, then windows of them; over
        sessions the order must not matter either. Emits the columns of the input, then
        ``window_start`` and ``window_end``.

        With an ``inverse``, a sliding window is computed from the one before it:
        ``inverse(whole, part)`` returns the record from which folding in ``part`` makes
        ``whole``. It must do so exactly (sums of floating-point numbers do not), and
        the order of records must not matter. It saves calls where windows have many
        panes; the result is the same.
        """
        check_function("reduce()", function, 2, of="two records")
        if inverse is not None:
            return self._function("reduce", self._sliding(function, inverse), uid)
        windows = self._windows
        if isinstance(windows.window, TimeWindows) and windows.has_panes:
            lateness_us = windows.lateness_us
            process: BuiltIn = WindowReduce(function, windows.window, lateness_us)
        else:
            process = windows.operator(Fold(function))
        return self._function("reduce", process, uid)

    def _sliding(
        self, function: Callable[[Any, Any], Any], inverse: Callable[[Any, Any], Any]
    ) -> BuiltIn:
        check_function("reduce(inverse=)", inverse, 2, of="two records")
        window = self._of_panes(
            "inverse of reduce", "leave it out: no record leaves such a window"
        )
        return SlidingReduce(function, inverse, window, self._windows.lateness_us)

    def apply(
        self,
        function: Callable[[Any, Any, list[Any]], Any],
        output: SchemaLike,
        *,
        uid: str | None = None,
    ) -> Stream:
        """Call ``function(key, window, records)`` for each window; it returns rows.

        All records are kept until their windows are over: prefer ``agg`` or ``reduce``
        where they do. ``window`` has ``start`` and ``end``; records are in order of
        their panes, then of arrival; those of a session in order of their times.
        Without ``key_by`` the key is None.
        """
        check_function("apply()", function, 3, of="key, window and records")
        windows, window = self._windows, self._windows.window
        if isinstance(window, TimeWindows) and windows.has_panes:
            lateness_us = windows.lateness_us
            process: BuiltIn = WindowApply(function, output, window, lateness_us)
        else:
            by_time = isinstance(window, SessionWindows)
            process = windows.operator(Kept(function, output, by_time=by_time))
        return self._function("apply", process, uid)

    def top(
        self, n: int, by: str, *, descending: bool = True, uid: str | None = None
    ) -> Stream:
        """Emit the ``n`` best records of each window by a column.

        Emits the columns of the input, ``rank`` (1 is the best), ``window_start`` and
        ``window_end``. Ranks are those of ``KeyedStream.top``; panes keep only their
        best records, and are forgotten with their windows.
        """
        ranking = Ranking(n, by, descending=descending)
        self._stream._check_column("top", by)
        window = self._of_panes(
            "top() over windows", "use .apply(...), which gets all records"
        )
        process = WindowTop(ranking, window, self._windows.lateness_us)
        return self._keyed("top", uid, process=process)

    def _of_panes(self, what: str, hint: str) -> TimeWindows:
        """Return windows that are made of panes; refuse others."""
        windows = self._windows
        if not isinstance(windows.window, TimeWindows) or not windows.has_panes:
            raise InvalidFlowError(
                what,
                expected="tumbling or sliding windows without a trigger",
                found=windows.title,
                hint=hint,
            )
        return windows.window

    def _function(self, kind: str, process: BuiltIn, uid: str | None) -> Stream:
        on_error = self._stream._program.on_error
        return self._keyed(kind, uid, process=process, on_error=on_error)

    def _keyed(self, kind: str, uid: str | None, **work: Any) -> Stream:
        program, above = self._stream._program, self._stream._node
        taken = program.take_uid(uid, kind)
        if not isinstance(self._windows.window, TIMED):
            above = with_end(program, above, taken)
        node = Keyed(
            uid=taken,
            input=above,
            keys=self._keys,
            windows=self._windows,
            method=kind,
            **work,
        )
        return self._stream._next(program.add(node), None)

    def count(self, *, uid: str | None = None) -> Stream:
        """Count the records of each window, as column ``count``."""
        return self.agg({"count": "count(*)"}, uid=uid)
