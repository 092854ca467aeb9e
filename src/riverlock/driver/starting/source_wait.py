"""The sources of a run that begins: one whose system is away is waited for.

Nothing of the store is owned yet, so that nobody is kept from it. The start announces
itself (format §3.2), says what it waits for, and checks whether it was asked to stop.
Everything else that sources say when they are asked first (a wrong password, a table
that does not fit) is a mistake of the flow or its surroundings, and ends the start.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from riverlock.coordinator.restart import patient_delay_us
from riverlock.core.errors import SourceUnavailableError, StorageError
from riverlock.snapshot.format.records import Stop
from riverlock.snapshot.starts import stop_of, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.coordinator.restart import RestartPolicy
    from riverlock.core.clock import Clock
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Start

__all__ = ["SourceWait"]

T = TypeVar("T")
log = logging.getLogger(__name__)
# How soon a request to stop is seen.
_LOOK_US: Final = 1_000_000


class SourceWait:
    """Waits for the sources of one start."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        *,
        announce: Callable[[], Start],
        pause: Callable[[float], object] = time.sleep,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Take what is needed to be seen and stopped.

        Args:
            catalog: The store.
            clock: Tells since when it is waited.
            announce: Returns the announcement of this start, which it makes if need be.
            pause: Lets seconds go by.
            is_stopped: Tells whether this process has asked the start to stop.
        """
        self._catalog, self._clock = catalog, clock
        self._announce, self._pause = announce, pause
        self._is_stopped = is_stopped

    def until_answered(
        self, action: Callable[[], T], policy: RestartPolicy
    ) -> T | Stop:
        """Do what needs the sources, as soon as all answer; or return who stopped it.

        Raises:
            RiverlockError: A source cannot be used, now or later.
        """
        tries, since_us = 0, self._clock.now_us()
        start: Start | None = None
        while True:
            try:
                found = action()
            except SourceUnavailableError as error:
                tries += 1
                delay_us = patient_delay_us(policy, tries)
                if delay_us is None:
                    raise
                start = start or self._announce()
                words = "waiting for source %r: the run begins when it answers; %s"
                log.warning(words, error.source, error.message)
                self._tell(start, waiting=error.message, waiting_since_us=since_us)
                stop = self._stop_within(start, delay_us)
                if stop is not None:
                    log.warning("asked to stop before the run began")
                    return stop
            else:
                if start is not None:
                    self._tell(start)
                return found

    def _tell(self, start: Start, **said: Any) -> None:
        now_us = self._clock.now_us()
        with suppress(StorageError):  # a hint; the next try tells it again
            told = msgspec.structs.replace(start, seen_us=now_us, **said)
            tell(self._catalog, told)

    def _stop_within(self, start: Start, delay_us: int) -> Stop | None:
        """Wait; return at once if this start is asked to stop."""
        while True:
            if self._is_stopped():
                return Stop(run=0, start=start.id)
            with suppress(StorageError):  # it is looked at again
                stop = stop_of(self._catalog, start)
                if stop is not None:
                    return stop
            if delay_us <= 0:
                return None
            step_us = min(delay_us, _LOOK_US)
            self._pause(step_us / 1_000_000)
            delay_us -= step_us
