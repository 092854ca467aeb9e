"""Windows under the names of Spark's discretized streams, for those who know them.

They are windows of event time like all others: they emit when the watermark passes
their end, are corrected within the ``lateness``, and send later records to ``.late``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.program.windows import sliding

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from riverlock.flow.keyed_stream import KeyedStream
    from riverlock.flow.stream import Stream
    from riverlock.flow.windowed import WindowedStream
    from riverlock.program.windows import TimeWindows

__all__ = ["KeyedWindowOperations", "WindowOperations"]


def _windows(size: str | timedelta, slide: str | timedelta | None) -> TimeWindows:
    return sliding(size, size if slide is None else slide)


class WindowOperations:
    """The part of ``Stream`` that is named as in Spark's ``DStream``."""

    if TYPE_CHECKING:
        window: Callable[..., WindowedStream]
        key_by: Callable[..., KeyedStream]

    def count_by_window(
        self,
        size: str | timedelta,
        slide: str | timedelta | None = None,
        *,
        lateness: str | timedelta = "0 seconds",
        uid: str | None = None,
    ) -> Stream:
        """Count the records of the last ``size``, every ``slide``, as ``count``.

        Args:
            size: The length of a window.
            slide: How often one ends; by default as often as it is long.
            lateness: How long after its end a window is kept, to be corrected.
            uid: Stable name of its state; keep it when the code changes.
        """
        return self.window(_windows(size, slide), lateness=lateness).count(uid=uid)

    def reduce_by_window(
        self,
        function: Callable[[Any, Any], Any],
        size: str | timedelta,
        slide: str | timedelta | None = None,
        *,
        lateness: str | timedelta = "0 seconds",
        uid: str | None = None,
    ) -> Stream:
        """Fold the records of the last ``size``, every ``slide``.

        Args:
            function: Associative: ``function(old, new)`` returns a record.
            size: The length of a window.
            slide: How often one ends; by default as often as it is long.
            lateness: How long after its end a window is kept, to be corrected.
            uid: Stable name of its state; keep it when the code changes.
        """
        windowed = self.window(_windows(size, slide), lateness=lateness)
        return windowed.reduce(function, uid=uid)

    def count_by_value_and_window(
        self,
        column: str,
        size: str | timedelta,
        slide: str | timedelta | None = None,
        *,
        lateness: str | timedelta = "0 seconds",
        uid: str | None = None,
    ) -> Stream:
        """Count how often each value of a column occurred in the last ``size``.

        Args:
            column: The column whose values are counted, as ``count``.
            size: The length of a window.
            slide: How often one ends; by default as often as it is long.
            lateness: How long after its end a window is kept, to be corrected.
            uid: Stable name of its state; keep it when the code changes.
        """
        windowed = self.key_by(column).window(_windows(size, slide), lateness=lateness)
        return windowed.count(uid=uid)


class KeyedWindowOperations:
    """The part of ``KeyedStream`` that is named as in Spark's ``DStream``."""

    if TYPE_CHECKING:
        window: Callable[..., WindowedStream]

    def reduce_by_key_and_window(  # noqa: PLR0913 - as in Spark, and ours
        self,
        function: Callable[[Any, Any], Any],
        size: str | timedelta,
        slide: str | timedelta | None = None,
        *,
        inverse: Callable[[Any, Any], Any] | None = None,
        lateness: str | timedelta = "0 seconds",
        uid: str | None = None,
    ) -> Stream:
        """Fold the records of each key in the last ``size``, every ``slide``.

        Args:
            function: Associative: ``function(old, new)`` returns a record.
            size: The length of a window.
            slide: How often one ends; by default as often as it is long.
            inverse: See ``reduce`` of a windowed stream.
            lateness: How long after its end a window is kept, to be corrected.
            uid: Stable name of its state; keep it when the code changes.
        """
        windowed = self.window(_windows(size, slide), lateness=lateness)
        return windowed.reduce(function, inverse=inverse, uid=uid)
