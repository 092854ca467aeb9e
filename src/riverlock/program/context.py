"""What user code sees besides the record: key, time, timers, outputs, randomness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import random
    from datetime import datetime

    from riverlock.program.process import SideOutput

__all__ = ["Context"]


class Context(Protocol):
    """The moment in which user code runs: annotate ``ctx: rl.Context``.

    It is valid during the call that receives it: keep values from it, not the context.
    Time and randomness are those of the epoch, so that an epoch can be run again with
    the same result.
    """

    @property
    def key(self) -> Any:
        """The key: a value, or a tuple of several."""

    @property
    def epoch(self) -> int:
        """The number of the epoch."""

    @property
    def time(self) -> datetime | None:
        """Event time of the record or timer; None if it has none.

        A processing-time timer has none: ``on_timer`` gets its instant.
        """

    @property
    def watermark(self) -> datetime | None:
        """No more records at or before this instant are expected; None: unknown."""

    @property
    def now(self) -> datetime:
        """Processing time: one instant for the whole epoch."""

    @property
    def random(self) -> random.Random:
        """A random generator, seeded by the epoch and the key."""

    def set_timer(self, at: datetime, *, processing: bool = False) -> None:
        """Call ``on_timer`` for this key when time reaches ``at``; once per instant.

        Args:
            at: When it fires. An instant that has passed fires in this epoch, or, if a
                timer sets it, in the next.
            processing: Go by the clock instead of event time.

        Raises:
            StateError: It would never fire: the stream has no event time.
        """

    def delete_timer(self, at: datetime, *, processing: bool = False) -> None:
        """Forget a timer; it is not an error if there is none."""

    def timers(self, *, processing: bool = False) -> list[datetime]:
        """Return the pending timers of this key, earliest first."""

    def emit(self, output: SideOutput | str, row: Any) -> None:
        """Send a row to a side output: a tuple in column order, or a dictionary.

        Raises:
            StateError: The process declares no such output.
        """
