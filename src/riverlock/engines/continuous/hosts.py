"""Where tasks run: something that gives each of them a process, or a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from riverlock.core.errors import RiverlockError

__all__ = ["Hosted", "Hosts"]


class Hosted(Protocol):
    """The tasks of one generation."""

    def failure(self) -> str | None:
        """Return why some of them cannot begin, or have ended; None: nothing is known.

        What tasks say themselves counts first: this is for those that cannot.
        """
        ...

    def stop(self) -> None:
        """Wait until all have ended, which they were told to; end what does not."""
        ...


class Hosts(Protocol):
    """Starts tasks: each runs ``task.run_task`` with the invitation and its number."""

    @property
    def address(self) -> str | None:
        """Where tasks on other hosts reach the driver; None: there are none."""
        ...

    def refusal(self, tasks: int) -> RiverlockError | None:
        """Return why so many tasks can never run at a time; None: they can."""
        ...

    def start(self, invitation: bytes, tasks: int) -> Hosted:
        """Start all tasks of a generation; return at once."""
        ...
