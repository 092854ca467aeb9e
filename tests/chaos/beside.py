"""Runs the flow of numbers beside a test, which watches its status."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chaos import numbers

from riverlock.snapshot.format.run_status import Status


class Statuses:
    """Waits for a status; holds the run at an epoch until it is let go."""

    def __init__(self, hold_at: int | None = None) -> None:
        self._changed = threading.Condition()
        self._hold_at = hold_at
        self._let_go = threading.Event()
        self.all: list[Status] = []

    def add(self, status: Status) -> None:
        with self._changed:
            self.all.append(status)
            self._changed.notify_all()
        epoch = -1 if status.epoch is None else status.epoch
        if self._hold_at is not None and epoch >= self._hold_at:
            self._let_go.wait()

    def let_go(self) -> None:
        """Let a run that is held, or will be, go on."""
        self._let_go.set()

    def wait_for(self, condition: Callable[[Status], bool]) -> Status:
        with self._changed:
            found = self._changed.wait_for(
                lambda: next((s for s in self.all if condition(s)), None), 120
            )
        assert found is not None, f"never seen; last: {self.all[-1:]}"
        return found

    def wait_for_last(self, condition: Callable[[Status], bool]) -> None:
        """Wait until the last one is such."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self.all and condition(self.all[-1]), 120
            ), f"last: {self.all[-1:]}"


@contextmanager
def running(
    store: Path, sinks: Any, limit: int, *, hold_at: int | None = None
) -> Iterator[Statuses]:
    """Run the flow of numbers beside the test, to its end."""
    statuses, errors = Statuses(hold_at), list[BaseException]()

    def drive() -> None:
        try:
            numbers.run(store, sinks, limit=limit, on_status=statuses.add)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=drive, name="riverlock-numbers")
    thread.start()
    try:
        yield statuses
    finally:
        statuses.let_go()
        thread.join()
    if errors:
        raise errors[0]
