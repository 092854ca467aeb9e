"""What a task has sent of the epoch that it is sending, edge by edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InternalError
from riverlock.exchange.protocol.frames import Marker, Rows

if TYPE_CHECKING:
    from riverlock.exchange.seam import Shape

__all__ = ["Sending"]


class Sending:
    """Counts what goes out on one edge, for its markers to tell.

    Rows of an edge are sent epoch by epoch: credit relies on it (see ``Inbox``).
    """

    def __init__(self, edge: int, shape: Shape) -> None:
        """Begin with nothing sent."""
        self._edge = edge
        self._tasks = shape.tasks
        self._begin(shape.first_epoch)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        self._turn: int | None = None
        self._frames = [0] * self._tasks
        self._rows = [0] * self._tasks

    def add(self, peer: int, rows: Rows) -> None:
        """Count rows.

        Raises:
            InternalError: They are not of the epoch that is being sent.
        """
        self._check(rows.epoch, rows.turn)
        self._frames[peer] += 1
        self._rows[peer] += rows.count

    def finish(self, epoch: int, turn: int) -> list[Marker]:
        """Return the markers, by peer; go on to the next epoch.

        Raises:
            InternalError: It is not the epoch that is being sent.
        """
        self._check(epoch, turn)
        markers = [
            Marker(edge=self._edge, epoch=epoch, turn=turn, frames=frames, rows=rows)
            for frames, rows in zip(self._frames, self._rows, strict=True)
        ]
        self._begin(epoch + 1)
        return markers

    def _check(self, epoch: int, turn: int) -> None:
        self._turn = turn if self._turn is None else self._turn
        if (epoch, turn) != (self._epoch, self._turn):
            raise InternalError(
                f"edge {self._edge}: something of epoch {epoch}, turn {turn}, while"
                f" epoch {self._epoch}, turn {self._turn} is being sent"
            )

    def cancel(self, epoch: int) -> None:
        """Begin this epoch again, if it was begun or is over."""
        if epoch <= self._epoch:
            self._begin(epoch)
