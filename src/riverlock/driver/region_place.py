"""One of the regions of a run: begun, driven to its end, and begun again if it fails.

It is begun again, too, when all regions go back: behind that, with nothing that it knew
before (``connectors/going_back``).

What may pass is tried again within a run of the region, by its coordinator. If that was
not enough, the region alone begins anew: the process goes on with others, so nobody
else would start it again. Errors that would only recur end it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from riverlock.connectors.going_back import take_up
from riverlock.coordinator.restart import delay_us
from riverlock.core.errors import RiverlockError
from riverlock.driver.steps.failures import may_pass
from riverlock.snapshot.starts import announced, stop_of, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.core.types import Schema
    from riverlock.driver.region_run import Run
    from riverlock.driver.run_options import RunOptions
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Change
    from riverlock.snapshot.format.run_status import Status

__all__ = ["RegionPlace"]

log = logging.getLogger(__name__)
_NAP_SECONDS: Final = 0.5


class RegionPlace:
    """A region, over as many runs as it takes."""

    def __init__(
        self,
        catalog: Catalog,
        options: RunOptions,
        make: Callable[[], Run],
        over: threading.Event,
        *,
        begins_again: bool,
    ) -> None:
        """Open nothing yet.

        Args:
            catalog: The region.
            options: What to do after a failure, and how much.
            make: Makes a run of it.
            over: Set when it has ended for good.
            begins_again: Whether others go on in this process if it fails.
        """
        self._catalog, self._options, self._make = catalog, options, make
        self._begins_again = begins_again
        self.run = make()
        self.over = over
        self._stopping = threading.Event()
        self._is_entered = False
        self._columns: Mapping[str, Schema] = {}
        self._gave: Mapping[str, Schema] = {}
        self._awaits: str | None = None

    @property
    def is_entered(self) -> bool:
        """Whether it has begun."""
        return self._is_entered

    @property
    def gives(self) -> Mapping[str, Schema]:
        """The columns of the channels that it fills, as far as they are known."""
        return self.run.gives or self._gave

    @property
    def status(self) -> Status:
        """How it is doing."""
        found = self.run.status
        if self._awaits is None:
            return found
        return msgspec.structs.replace(found, state="starting", error=self._awaits)

    def expect(self, columns: Mapping[str, Schema]) -> None:
        """Take the columns of channels that it reads, to begin when it is driven."""
        self._columns = columns

    def enter(self, columns: Mapping[str, Schema]) -> None:
        """Begin: go back if all do, check the region, then own its part of the store.

        Raises:
            RiverlockError: It cannot run here.
        """
        self._columns = columns
        take_up(self._catalog, now_us=self._options.clock.now_us())
        self.run.take_columns(columns)
        self.run.__enter__()
        self._is_entered = True

    def close(self) -> None:
        """Release what its run has open; the heart stops."""
        if self._is_entered:
            self._is_entered = False
            self._gave = self.gives
            self.run.__exit__(None, None, None)

    def stop(self, savepoint: str | None = None) -> None:
        """Finish the epoch in progress, then end; from any thread."""
        self._stopping.set()
        self.run.stop(savepoint)

    def set(self, change: Change) -> int | None:
        """Change parameters; return the epoch that has them, None if it has ended.

        What a run did not take up because all regions went back, the next one is asked.
        """
        while True:
            run = self.run
            epoch = run.set(change)
            if epoch is not None or not run.goes_back:
                return epoch
            while self.run is run or not self.run.has_begun:
                if self.over.wait(_NAP_SECONDS):
                    return None

    def drive(self) -> None:
        """Run to the end, however often it has to begin again.

        Raises:
            RiverlockError: What ended it.
        """
        failures = 0
        while True:
            try:
                self._drive_once()
            except RiverlockError as error:
                failures = 1 if self.run.epochs else failures + 1
                delay = self._delay_us(error, failures)
                if delay is None:
                    self.run.tell_failed(error)
                    raise
                self.close()
                if not self._wait(error, delay):
                    raise
            else:
                return
            finally:
                self.close()

    def _drive_once(self) -> None:
        if not self._is_entered:
            self._begin()
        self.run.drive()
        while self.run.goes_back:
            self._awaits = "goes back with all regions"
            try:
                # Before its heart stops: others would take it for over.
                now_us = self._options.clock.now_us()
                with announced(self._catalog, now_us=now_us):
                    tasks = self._parallelism()
                    self.close()
                    self._begin()
                if tasks is not None and self.run.has_begun:
                    self.run.rescale(tasks)
            finally:
                self._awaits = None
            self.run.drive()

    def _parallelism(self) -> int | None:
        """Return what its run has come to, which may have been set since it began."""
        newest = self._catalog.newest() if self.run.epochs else None
        return None if newest is None else newest.parallelism

    def _begin(self) -> None:
        self.run = self._make()
        self.enter(self._columns)
        if self._stopping.is_set():
            self.run.stop()

    def _delay_us(self, error: RiverlockError, failures: int) -> int | None:
        """Return how long to wait before it begins again; None: it does not."""
        if not self._begins_again or not may_pass(error) or self._stopping.is_set():
            return None
        return delay_us(self._options.restart, failures)

    def _wait(self, error: RiverlockError, delay_us: int) -> bool:
        """Wait, and tell it; False: it was asked to stop."""
        region, seconds = self._catalog.region, delay_us / 1_000_000
        self._awaits = f"begins again in {seconds:g} s: {error}"
        log.warning("region %r %s", region, self._awaits)
        now_us = self._options.clock.now_us()
        try:
            with announced(self._catalog, now_us=now_us) as start:
                told = msgspec.structs.replace(
                    start,
                    waiting=self._awaits,
                    waiting_since_us=now_us,
                    seen_us=now_us,
                )
                tell(self._catalog, told)
                while seconds > 0:
                    if self._stopping.wait(min(seconds, _NAP_SECONDS)):
                        return False
                    seconds -= _NAP_SECONDS
                return stop_of(self._catalog, start) is None
        finally:
            self._awaits = None
