"""Streams that can be divided into windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import duration_us
from riverlock.flow.windowed import WindowedStream
from riverlock.operators.windows.window_operator import Gathering
from riverlock.program.triggers import Trigger
from riverlock.program.windows import TIMED, CountWindows, Windows

if TYPE_CHECKING:
    from datetime import timedelta

    from riverlock.flow.stream import Stream

__all__ = ["Windowable"]


class Windowable:
    """What ``Stream`` and ``KeyedStream`` can do with windows."""

    def window(
        self,
        window: Windows,
        *,
        lateness: str | timedelta = "0 seconds",
        trigger: Trigger | None = None,
        accumulate: bool = True,
    ) -> WindowedStream:
        """Divide the records, per key if there is one: ``rl.tumbling("1 hour")``.

        Args:
            window: The kind of windows.
            lateness: How long after its end a window is kept, to be corrected.
            trigger: When a window emits, such as ``rl.early(count=1000)``; by default
                when the watermark passes its end. Rows then have a column that says why
                they were emitted.
            accumulate: Whether a window that emits again has all its records, or only
                those since.

        Raises:
            InvalidFlowError: These do not go together.
        """
        stream, keys = self._to_window()
        windows = _checked(window, lateness, trigger, accumulate=accumulate)
        return WindowedStream(stream, keys, windows)

    def _to_window(self) -> tuple[Stream, tuple[str, ...]]:
        """Return the stream and the keys to divide it by."""
        raise AssertionError


def _checked(
    window: Windows,
    lateness: str | timedelta,
    trigger: Trigger | None,
    *,
    accumulate: bool,
) -> Gathering:
    """Return which records belong together, and when they are emitted.

    Raises:
        InvalidFlowError: It is impossible.
    """
    if not isinstance(window, Windows):
        raise InvalidFlowError(
            "window()",
            expected="one of rl.tumbling, rl.sliding, rl.sessions, rl.count_windows,"
            " rl.global_window",
            found=repr(window),
            hint='write window(rl.tumbling("1 hour"))',
        )
    if trigger is not None and not isinstance(trigger, Trigger):
        raise InvalidFlowError(
            "window(trigger=)",
            expected="rl.early or rl.at_watermark",
            found=repr(trigger),
            hint="write trigger=rl.early(count=1000)",
        )
    lateness_us = duration_us(lateness)
    if lateness_us and not isinstance(window, TIMED):
        raise InvalidFlowError(
            "window(lateness=)",
            expected="windows of event time",
            found=str(window),
            hint="leave it out: no record is late here",
        )
    # Rows of other windows do not say why they were emitted.
    is_triggered = (trigger is not None and trigger.is_early) or not accumulate
    if is_triggered and isinstance(window, CountWindows):
        raise InvalidFlowError(
            "window(trigger=)",
            expected="windows that emit more than once",
            found=str(window),
            hint="rl.global_window() with rl.early(count=...) emits early",
        )
    return Gathering(
        window=window,
        lateness_us=lateness_us,
        trigger=(trigger or Trigger()) if is_triggered else None,
        accumulates=accumulate,
    )
