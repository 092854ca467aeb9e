"""Which turns of which epochs were cancelled."""

from __future__ import annotations

__all__ = ["Floors"]


class Floors:
    """For each epoch the lowest turn that counts.

    Tasks hear of cancels at different times, but all hear the same ones in the same
    order, so that the newest turn tells which of them a task has heard.
    """

    def __init__(self) -> None:
        """Begin with every turn valid."""
        # First epochs and their floors; both grow.
        self._cancels: list[tuple[int, int]] = []

    @property
    def newest(self) -> int:
        """The turn of the last cancel; -1: there was none."""
        return self._cancels[-1][1] if self._cancels else -1

    def add(self, epoch: int, turn: int) -> bool:
        """Take up a cancel; tell whether it is news."""
        if turn <= self.newest:
            return False
        # It covers earlier cancels of the same and later epochs.
        self._cancels = [c for c in self._cancels if c[0] < epoch]
        self._cancels.append((epoch, turn))
        return True

    def is_void(self, epoch: int, turn: int) -> bool:
        """Tell whether what has this turn was cancelled."""
        return any(epoch >= first and turn < floor for first, floor in self._cancels)

    def first_epoch_since(self, turn: int) -> int | None:
        """Return the first epoch cancelled by those who come after a turn."""
        return min((e for e, floor in self._cancels if floor > turn), default=None)
