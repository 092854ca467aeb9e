"""What user code sees besides the record: key, time, timers, outputs, chance."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import StateError
from riverlock.core.times import from_micros, micros, watermark_time
from riverlock.state.keys import TIMER, time_of
from riverlock.state.store import EVENT, PROCESSING

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from datetime import datetime

    from riverlock.program.process import SideOutput
    from riverlock.state.handles import Visit

__all__ = ["Context"]


class Context:
    """The moment in which user code runs.

    Time and randomness are those of the epoch, so that an epoch can be run again and
    give the same result.
    """

    __slots__ = (
        "_bury",
        "_emitted",
        "_epoch",
        "_freezers",
        "_has_event_time",
        "_late_us",
        "_main",
        "_now_us",
        "_previous_us",
        "_random",
        "_seed",
        "_time_us",
        "_timers",
        "_visit",
        "_watermark_us",
        "key",
    )

    def __init__(
        self, *, epoch: int, now_us: int, watermark_us: int | None, seed: int
    ) -> None:
        """Fix what holds for the whole epoch."""
        self.key: Any = None
        self._epoch = epoch
        self._now_us = now_us
        self._watermark_us = watermark_us
        self._seed = seed
        # Watermark of the epoch before, and up to when a record is late.
        self._previous_us: int | None = None
        self._late_us: int | None = None
        self._time_us: int | None = None
        self._random: random.Random | None = None
        # Timers of the current key that were set (True) or removed (False).
        self._timers: MutableMapping[tuple[int, int], bool] = {}
        self._emitted: dict[str, list[tuple[Any, int | None]]] = {}
        self._main: list[tuple[Any, int | None]] = []
        self._freezers: dict[str, Callable[[Any], Any]] = {}
        self._visit: Visit | None = None
        self._has_event_time = True
        # Takes what built-in operators catch of user code, if there are dead letters.
        self._bury: Callable[[Exception, Any], None] | None = None

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch

    @property
    def time(self) -> datetime | None:
        """Event time of the record or timer; None if it has none.

        A timer of processing time has none: ``on_timer`` is given its instant.
        """
        us = self._time_us
        return None if us is None else from_micros(us)

    @property
    def watermark(self) -> datetime | None:
        """No more records at or before this instant are expected; None: unknown."""
        return watermark_time(self._watermark_us)

    @property
    def now(self) -> datetime:
        """Processing time: one instant for the whole epoch."""
        return from_micros(self._now_us)

    @property
    def random(self) -> random.Random:
        """A random generator, seeded by the epoch and the key."""
        if self._random is None:
            name = self._visit.at[0].hex() if self._visit else ""
            self._random = random.Random(f"{self._seed}:{name}")  # noqa: S311 - no secret
        return self._random

    def set_timer(self, at: datetime, *, processing: bool = False) -> None:
        """Call ``on_timer`` for this key when time reaches ``at``; once per instant.

        Raises:
            StateError: It would never fire: the stream has no event time.
        """
        if not processing and not self._has_event_time:
            raise StateError(
                "a timer of event time would never fire: the stream has no event time",
                hint='declare it before key_by: .event_time("at", delay="1 minute");'
                " or go by the clock: set_timer(at, processing=True)",
            )
        self._timers[(PROCESSING if processing else EVENT, micros(at))] = True

    def delete_timer(self, at: datetime, *, processing: bool = False) -> None:
        """Forget a timer; it is no error if there is none."""
        self._timers[(PROCESSING if processing else EVENT, micros(at))] = False

    def timers(self, *, processing: bool = False) -> list[datetime]:
        """Return the pending timers of this key, earliest first."""
        kind = PROCESSING if processing else EVENT
        assert self._visit
        prefix = self._visit.at[0] + TIMER + bytes((kind,))
        pending = {time_of(i[-8:]) for i, _ in self._visit.reader.scan(prefix)}
        for (k, at), is_on in self._timers.items():
            if k == kind:
                (pending.add if is_on else pending.discard)(at)
        return [from_micros(us) for us in sorted(pending)]

    def _give(self, row: tuple[Any, ...], at_us: int | None) -> None:
        """Give a row of the main output a time of its own; for built-in operators."""
        self._main.append((self._freezers["main"](row), at_us))

    def emit(self, output: SideOutput | str, row: Any) -> None:
        """Send a row to a side output."""
        name = output if isinstance(output, str) else output.name
        try:
            self._emitted[name].append((self._freezers[name](row), self._time_us))
        except KeyError:
            known = ", ".join(self._emitted) or "none"
            message = f"no side output {name!r}; declared: {known}"
            raise StateError(message) from None
