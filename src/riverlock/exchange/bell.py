"""One lock and one bell for all that a task waits for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Bell"]


class Bell:
    """Guards what threads share, and wakes those who wait for it to change.

    Held (``with bell:``) for moments only, and never while anything is sent or read.
    It may be taken again by the thread that holds it.
    """

    def __init__(self) -> None:
        """Begin silent."""
        self._condition = threading.Condition(threading.RLock())

    def ring(self) -> None:
        """Have all who wait look again; the caller holds it."""
        self._condition.notify_all()

    def wait_for(self, until: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so; ``until`` is asked while the bell is held."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            while not until():
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._condition.wait(left)
            return True

    def __enter__(self) -> Self:
        """Take it."""
        self._condition.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let it go."""
        self._condition.release()
