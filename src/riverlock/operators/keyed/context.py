"""The context of one task and epoch, as operators and the loop use it.

Users see it as ``rl.Context``, the part of it that is promised to them.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, ClassVar

from riverlock.core.errors import InvalidConfigError, StateError
from riverlock.core.suggestions import did_you_mean
from riverlock.core.times import from_micros, micros, watermark_time
from riverlock.state.keys import TIMER, time_of
from riverlock.state.store import EVENT, PROCESSING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from datetime import datetime

    from riverlock.operators.shipped import EpochInfo, OperatorProgram
    from riverlock.program.process import SideOutput
    from riverlock.state.handles import Visit

__all__ = ["OperatorContext"]


Emitted = list[tuple[Any, int | None]]


class OperatorContext:
    """What an operator knows, and what it does besides changing state.

    One serves all keys of a task. The loop moves it from key to key and from record to
    record by its attributes, which our own operators may read, and of which they set
    only ``time_us``.

    Attributes:
        key: The key whose turn it is.
        time_us: Event time of the record or timer, and of rows that are emitted next.
        now_us: Processing time of the epoch.
        watermark_us: How far event time has come, for the step in progress.
        previous_us: The watermark of the epoch before.
        late_us: Up to when records of this epoch are late.
        timer_changes: Timers of the key that were set (True) or removed (False), by
            kind and time.
        generator: The random generator of the key's turn, once it was asked for.
        is_silent: Whether the step in progress must not emit.
    """

    __slots__ = (
        "_bury",
        "_epoch",
        "_has_event_time",
        "_main",
        "_row_makers",
        "_seed",
        "_sides",
        "generator",
        "is_silent",
        "key",
        "late_us",
        "now_us",
        "previous_us",
        "time_us",
        "timer_changes",
        "visit",
        "watermark_us",
    )

    # What errors call it.
    called: ClassVar = "ctx"

    def __init__(self, program: OperatorProgram, info: EpochInfo) -> None:
        """Fix what holds for the whole epoch."""
        self.key: Any = None
        self._epoch, self._seed = info.epoch, info.seed
        self._has_event_time = program.has_event_time
        self.now_us = info.now_us
        self.previous_us = info.previous_us
        self.late_us = program.late_at(info)
        # Rows of other keyed operators come before the watermark that made them.
        self.watermark_us = self.late_us
        self.time_us: int | None = None
        self.generator: random.Random | None = None
        self.is_silent = False
        self.timer_changes: MutableMapping[tuple[int, int], bool] = {}
        # The key's place in state, while the loop is at one.
        self.visit: Visit | None = None
        self._main: Emitted = []
        self._sides: Mapping[str, Emitted] = {}
        self._row_makers: Mapping[str, Callable[[Any], Any]] = {}
        self._bury: Callable[[Exception, Any], None] | None = None

    def emit_into(
        self,
        main: Emitted,
        sides: Mapping[str, Emitted],
        row_makers: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        """Say where rows go: those of the main output, and of others by name.

        Args:
            main: Rows of the main output, with their event times.
            sides: The same of side outputs.
            row_makers: What makes rows of each output such that they stay as they are.
        """
        self._main, self._sides, self._row_makers = main, sides, row_makers

    def bury_with(self, bury: Callable[[Exception, Any], None]) -> None:
        """Say who takes dead letters; without this there are none."""
        self._bury = bury

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch

    @property
    def time(self) -> datetime | None:
        """Event time of the record or timer; None if it has none.

        A processing-time timer has none: ``on_timer`` gets its instant.
        """
        us = self.time_us
        return None if us is None else from_micros(us)

    @property
    def watermark(self) -> datetime | None:
        """No more records at or before this instant are expected; None: unknown."""
        return watermark_time(self.watermark_us)

    @property
    def now(self) -> datetime:
        """Processing time: one instant for the whole epoch."""
        return from_micros(self.now_us)

    @property
    def random(self) -> random.Random:
        """A random generator, seeded by the epoch and the key."""
        if self.generator is None:
            name = self.visit.at[0].hex() if self.visit else ""
            self.generator = random.Random(f"{self._seed}:{name}")  # noqa: S311 - no secret
        return self.generator

    def set_timer(self, at: datetime, *, processing: bool = False) -> None:
        """Call ``on_timer`` for this key when time reaches ``at``; once per instant.

        Raises:
            StateError: It would never fire: the stream has no event time.
        """
        at_us = _instant("set_timer", at)
        if not processing and not self._has_event_time:
            raise StateError(
                "a timer of event time would never fire: the stream has no event time",
                hint='declare it before key_by: .event_time("at", delay="1 minute");'
                " or go by the clock: set_timer(at, processing=True)",
            )
        self.timer_changes[(PROCESSING if processing else EVENT, at_us)] = True

    def delete_timer(self, at: datetime, *, processing: bool = False) -> None:
        """Forget a timer; it is not an error if there is none."""
        at_us = _instant("delete_timer", at)
        self.timer_changes[(PROCESSING if processing else EVENT, at_us)] = False

    def timers(self, *, processing: bool = False) -> list[datetime]:
        """Return the pending timers of this key, earliest first."""
        kind = PROCESSING if processing else EVENT
        assert self.visit
        prefix = self.visit.at[0] + TIMER + bytes((kind,))
        pending = {time_of(i[-8:]) for i, _ in self.visit.reader.scan(prefix)}
        for (k, at), is_on in self.timer_changes.items():
            if k == kind:
                (pending.add if is_on else pending.discard)(at)
        return [from_micros(us) for us in sorted(pending)]

    def switch_timer(self, at_us: int, kind: int = EVENT, *, on: bool) -> None:
        """Set a timer of this key, or remove it, by its microsecond."""
        self.timer_changes[(kind, at_us)] = on

    def has_output(self, name: str) -> bool:
        """Whether there is such a side output, and somebody reads it."""
        return name in self._sides

    def as_row(self, row: Any) -> Any:
        """Return a row of the main output as it will be emitted.

        Raises:
            RowError: It does not fit, where each row is checked.
        """
        return self._row_makers["main"](row)

    def emit_at(self, row: tuple[Any, ...], at_us: int | None) -> None:
        """Emit a row of the main output with an event time of its own."""
        self._main.append((self.as_row(row), at_us))

    @property
    def buries(self) -> bool:
        """Whether there is a sink for dead letters."""
        return self._bury is not None

    def bury(self, error: Exception, record: Any) -> None:
        """Make a dead letter of what user code has raised for a record.

        Only where ``buries``.
        """
        assert self._bury is not None
        self._bury(error, record)

    def emit(self, output: SideOutput | str, row: Any) -> None:
        """Send a row to a side output."""
        name = output if isinstance(output, str) else output.name
        if self.is_silent:
            raise StateError(
                f"on_control cannot emit, got a row for {name!r}",
                hint="keep it in state, and emit it from on_event or on_timer",
            )
        try:
            self._sides[name].append((self._row_makers[name](row), self.time_us))
        except KeyError:
            known = ", ".join(self._sides) or "none"
            raise StateError(
                f"ctx.emit() needs a declared side output ({known}), got {name!r}",
                hint=did_you_mean(name, self._sides),
            ) from None


def _instant(method: str, at: datetime) -> int:
    try:
        return micros(at)
    except InvalidConfigError as error:
        raise StateError(
            f"ctx.{method}() needs a datetime with a time zone, got {at!r:.200}",
            hint="write ctx.time + timedelta(minutes=10), or ctx.now + ... with"
            " processing=True",
        ) from error
