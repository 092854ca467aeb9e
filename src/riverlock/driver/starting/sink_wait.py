"""The sinks of a run that begins: one whose system is away is waited for.

Everything else that they say when they are asked first (a wrong password, a table that
does not fit) is a mistake of the flow or its surroundings, and ends the start.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from riverlock.core.errors import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.committer import Committer, Owner

__all__ = ["Openings"]

log = logging.getLogger(__name__)


class Openings:
    """The sinks that are yet to be opened; used from one thread at a time."""

    def __init__(
        self, committers: Mapping[str, Committer], owners: Mapping[str, Owner]
    ) -> None:
        """Open nothing yet."""
        self._closed, self._owners = dict(committers), owners

    def attempt(self) -> tuple[str, SinkUnavailableError] | None:
        """Open the sinks that are not open; return one that is awaited, and why.

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
