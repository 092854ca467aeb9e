"""Which operator gathers the records of a window, one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.operators.sessions.session_windows import Sessions
from riverlock.operators.windows.count_windows import NUMBERS, Counted
from riverlock.operators.windows.triggered_windows import Triggered
from riverlock.operators.windows.window_columns import BOUNDS
from riverlock.program.windows import (
    CountWindows,
    GlobalWindow,
    SessionWindows,
    TimeWindows,
    Windows,
)

if TYPE_CHECKING:
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.windows.window_contents import Content
    from riverlock.program.triggers import Trigger

__all__ = ["Gathering"]


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """Which records belong together, and when they are emitted.

    Attributes:
        window: Which belong together.
        lateness_us: How long a window that is over can be corrected.
        trigger: When it emits; None: when it is over.
        accumulates: Whether it emits all records each time, or only new ones.
    """

    window: Windows
    lateness_us: int = 0
    trigger: Trigger | None = None
    accumulates: bool = True

    def __str__(self) -> str:
        """Say what must not change while there is state (format §4.1)."""
        kind = "" if self.trigger is None else "triggered "
        mode = "" if self.accumulates else "discarding "
        return f"{kind}{mode}{self.window} lateness {self.lateness_us}"

    @property
    def title(self) -> str:
        """What these windows are called, for people."""
        match self.window:
            case TimeWindows():
                kind = "tumbling" if self.window.is_tumbling else "sliding"
            case SessionWindows():
                kind = "session"
            case CountWindows():
                kind = "count"
            case GlobalWindow():
                kind = "global"
        ending = "" if self.trigger is None else " with a trigger"
        return f"{kind} windows{ending}"

    @property
    def has_panes(self) -> bool:
        """Whether windows are made of panes, and not of single records."""
        return isinstance(self.window, TimeWindows) and self.trigger is None

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns that tell windows of a key apart."""
        match self.window:
            case CountWindows():
                return NUMBERS
            case GlobalWindow():
                return ()
            case _:
                return BOUNDS

    @property
    def is_early(self) -> bool:
        """Whether a window emits before it is over."""
        return self.trigger is not None and self.trigger.is_early

    def operator(self, content: Content) -> BuiltIn:
        """Return the operator for what becomes of the records."""
        if isinstance(self.window, CountWindows):
            return Counted(content, self.window)
        if isinstance(self.window, SessionWindows) and self.trigger is None:
            return Sessions(content, self.window, self.lateness_us)
        return Triggered(
            content,
            self.window,
            self.lateness_us,
            self.trigger,
            accumulates=self.accumulates,
        )
