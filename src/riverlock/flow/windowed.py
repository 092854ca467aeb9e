"""Streams in windows: what is computed of the records in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import duration_us
from riverlock.flow.contents import Fold, Kept
from riverlock.flow.ending import with_end
from riverlock.flow.gathering import gathering
from riverlock.flow.graph import Keyed, Output
from riverlock.flow.window_functions import WindowApply, WindowReduce
from riverlock.flow.windows import SessionWindows, TimeWindows, Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from riverlock.core.types import SchemaLike
    from riverlock.flow.graph import Node
    from riverlock.flow.operators import BuiltIn
    from riverlock.flow.stream import Stream

__all__ = ["TIMED", "WindowedStream", "in_mode"]

# Windows of event time: records can be late for them.
TIMED = TimeWindows | SessionWindows


class WindowedStream:
    """A stream whose records lie in windows of event time."""

    def __init__(
        self,
        stream: Stream,
        keys: tuple[str, ...],
        window: Windows,
        lateness: str | timedelta,
    ) -> None:
        """Made by ``window``."""
        if not isinstance(window, Windows):
            raise InvalidFlowError(
                "window",
                expected="one of rl.tumbling, rl.sliding, rl.sessions,"
                " rl.count_windows",
                found=repr(window),
                hint='write window(rl.tumbling("1 hour"))',
            )
        self._stream, self._keys, self._window = stream, keys, window
        self._lateness_us = duration_us(lateness)
        if self._lateness_us and not isinstance(window, TIMED):
            raise InvalidFlowError(
                "lateness of a window",
                expected="windows of event time",
                found=str(window),
                hint="leave it out: no record is late here",
            )

    def agg(
        self,
        aggregates: Mapping[str, Any] | None = None,
        *,
        uid: str | None = None,
        **named: Any,
    ) -> Stream:
        """Aggregate each window: ``agg(n="count(*)", total=F.sum("amount"))``.

        Gives the key columns, ``window_start``, ``window_end``, then the aggregates:
        once when the watermark passes the end of the window, and again whenever records
        come that are late by no more than ``lateness``. What comes later still is in
        ``.late``. With ``write(sink, mode="update")`` a sink gets every change.
        """
        every = {**(aggregates or {}), **named}
        if not every:
            raise InvalidFlowError(
                "agg", expected="named aggregates such as n='count(*)'", found="none"
            )
        return self._keyed("window", uid, process=None, aggregates=every)

    def reduce(
        self, function: Callable[[Any, Any], Any], *, uid: str | None = None
    ) -> Stream:
        """Fold the records of each window: ``function(old, new)`` returns a record.

        It must be associative: panes are folded first, then windows of them; over
        sessions the order must not matter either. Gives the columns of the input, then
        ``window_start`` and ``window_end``.
        """
        _check_function("reduce", function)
        if isinstance(self._window, TimeWindows):
            process: BuiltIn = WindowReduce(function, self._window, self._lateness_us)
        else:
            process = gathering(Fold(function), self._window, self._lateness_us)
        return self._function("reduce", process, uid)

    def apply(
        self,
        function: Callable[..., Any],
        output: SchemaLike,
        *,
        uid: str | None = None,
    ) -> Stream:
        """Call ``function(key, window, records)`` for each window; it returns rows.

        All records are kept until their windows are over: prefer ``agg`` or ``reduce``
        where they do. ``window`` has ``start`` and ``end``; records are in order of
        their panes, then of arrival; those of a session in order of their times. The
        key of a stream that is not keyed is None.
        """
        _check_function("apply", function)
        window, lateness_us = self._window, self._lateness_us
        if isinstance(window, TimeWindows):
            process: BuiltIn = WindowApply(function, output, window, lateness_us)
        else:
            by_time = isinstance(window, SessionWindows)
            kept = Kept(function, output, by_time=by_time)
            process = gathering(kept, window, lateness_us)
        return self._function("apply", process, uid)

    def _function(self, kind: str, process: BuiltIn, uid: str | None) -> Stream:
        on_error = self._stream.flow.on_error
        return self._keyed(kind, uid, process=process, on_error=on_error)

    def _keyed(self, kind: str, uid: str | None, **work: Any) -> Stream:
        flow, above = self._stream.flow, self._stream.node
        taken = flow.take_uid(uid, kind)
        if not isinstance(self._window, TIMED):
            above = with_end(flow, above, taken)
        node = Keyed(
            uid=taken,
            input=above,
            keys=self._keys,
            window=self._window,
            lateness_us=self._lateness_us,
            **work,
        )
        return self._stream._next(flow.add(node), None)

    def count(self, *, uid: str | None = None) -> Stream:
        """Count the records of each window, as column ``count``."""
        return self.agg({"count": "count(*)"}, uid=uid)


def _check_function(what: str, function: object) -> None:
    if not callable(function):
        raise InvalidFlowError(
            f"argument of {what}", expected="a function", found=repr(function)
        )


# The output of a window that a mode of writing is.
_MODES = {"append": "main", "update": "updates"}


def in_mode(node: Node, mode: str) -> Output:
    """Return the output of a window that a sink gets in a mode.

    Raises:
        InvalidFlowError: There is no such mode of these rows.
    """
    keyed = node.input if isinstance(node, Output) else None
    if not isinstance(keyed, Keyed) or keyed.window is None:
        raise InvalidFlowError(
            f"mode {mode!r} of write",
            expected="the output of a window",
            found="a stream that has one mode only",
        )
    if mode == "update" and keyed.process is not None:
        raise InvalidFlowError(
            "mode 'update' of functions over windows",
            expected="append",
            found="update",
            hint="use .agg(...)",
        )
    if mode == "update" and isinstance(keyed.window, SessionWindows):
        raise InvalidFlowError(
            "mode 'update' of sessions",
            expected="append",
            found="update",
            hint="a session that grows has another beginning or end each time: there is"
            " no row that it could replace",
        )
    if mode == "update" and not isinstance(keyed.window, TimeWindows):
        raise InvalidFlowError(
            f"mode 'update' of windows: {keyed.window}",
            expected="append",
            found="update",
        )
    if mode not in _MODES:
        raise InvalidFlowError(
            "mode of write", expected=" or ".join(_MODES), found=repr(mode)
        )
    return Output(input=keyed, name=_MODES[mode])
