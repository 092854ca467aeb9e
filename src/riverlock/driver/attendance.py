"""Whether anything is there to run tasks.

A cluster may lose an application: a master that comes back without its memory has its
workers kill the executors, and tells nobody. Spark then waits for executors without
end. So while a stage runs, executors are counted.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.core.errors import ClusterLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from riverlock.core.clock import Clock

__all__ = ["Absence", "Attendance"]

_SECOND_US = 1_000_000
_LOOK_SECONDS = 5.0


@dataclass
class Absence:
    """How long there has been no executor.

    Attributes:
        limit_us: How long is too long.
    """

    limit_us: int
    since_us: int | None = None

    def note(self, executors: int, *, now_us: int) -> bool:
        """Take note of a count; True: there has been none for too long."""
        if executors > 0:
            self.since_us = None
        elif self.since_us is None:
            self.since_us = now_us
        return self.since_us is not None and now_us - self.since_us >= self.limit_us


@dataclass(frozen=True, kw_only=True)
class Attendance:
    """Counts executors while a stage runs.

    Attributes:
        master: Where the application runs.
        executors: Counts them; None: they can no longer be counted.
        clock: Measures how long.
        limit_us: How long there may be none.
        look_seconds: How often they are counted.
    """

    master: str
    executors: Callable[[], int | None]
    clock: Clock
    limit_us: int
    look_seconds: float = _LOOK_SECONDS

    @contextmanager
    def kept(self, epoch: int, cancel: Callable[[], None]) -> Iterator[None]:
        """Cancel what runs meanwhile once there has been no executor for too long.

        Raises:
            ClusterLostError: There was none.
        """
        watch = _Watch(self, cancel)
        watch.thread.start()
        try:
            yield
        except Exception:
            watch.end()
            if watch.is_lost:
                seconds = self.limit_us // _SECOND_US
                raise ClusterLostError(
                    master=self.master, epoch=epoch, seconds=seconds
                ) from None
            raise
        finally:
            watch.end()


@dataclass
class _Watch:
    """One stage, watched from a thread beside it."""

    attendance: Attendance
    cancel: Callable[[], None]
    is_lost: bool = False
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(
            target=self._watch, name="riverlock-attendance", daemon=True
        )

    def _watch(self) -> None:
        kept = self.attendance
        absence = Absence(kept.limit_us)
        while not self._over.wait(kept.look_seconds):
            count = kept.executors()
            if count is None:
                return
            if absence.note(count, now_us=kept.clock.elapsed_us()):
                self.is_lost = True
                self.cancel()
                return

    def end(self) -> None:
        """Stop watching; what it was about to cancel is the stage, nothing later."""
        self._over.set()
        self.thread.join()
