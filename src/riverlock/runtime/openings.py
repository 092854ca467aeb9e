"""The sources and sinks of a run that begins: one whose system is away is waited for.

Everything else that they say when they are asked first (a wrong password, a table that
does not fit) is a mistake of the flow or its surroundings, and ends the start.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from riverlock.coordinator.restart import patient_delay_us
from riverlock.core.errors import SinkUnavailableError, SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.coordinator.restart import RestartPolicy
    from riverlock.sinks.committer import Committer, Owner

__all__ = ["Openings", "when_sources_answer"]

T = TypeVar("T")
log = logging.getLogger(__name__)


def when_sources_answer(action: Callable[[], T], policy: RestartPolicy) -> T:
    """Do what needs the sources of a flow, as soon as all of them answer.

    Nothing of the store is owned yet, so that whoever waits here may be interrupted.

    Raises:
        RiverlockError: A source cannot be used, now or later.
    """
    tries = 0
    while True:
        try:
            return action()
        except SourceUnavailableError as error:
            tries += 1
            delay_us = patient_delay_us(policy, tries)
            if delay_us is None:
                raise
            words = "waiting for source %r: the run begins when it answers; %s"
            log.warning(words, error.source, error.message)
            time.sleep(delay_us / 1_000_000)


class Openings:
    """The sinks that are yet to be opened; used from one thread at a time."""

    def __init__(
        self, committers: Mapping[str, Committer], owners: Mapping[str, Owner]
    ) -> None:
        """Open nothing yet."""
        self._closed, self._owners = dict(committers), owners

    def attempt(self) -> tuple[str, SinkUnavailableError] | None:
        """Open the sinks that are not open; returns one that is awaited, and why.

        Raises:
            RiverlockError: A sink cannot be used, now or later.
        """
        awaited = None
        for name, committer in list(self._closed.items()):
            try:
                committer.open(self._owners[name])
            except SinkUnavailableError as error:
                log.warning("sink %s is awaited: %s", name, error)
                awaited = awaited or (name, error)
                continue
            del self._closed[name]
        return awaited
