"""``parallelism="auto"``: how many tasks the next epochs should have.

A simple policy, slow to change. More tasks when the input has piled up for several
epochs in a row; fewer when epochs are short and nothing waits, for much longer. Every
change makes new owners of key groups read state, so each is followed by a rest.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Autoscale"]

# So many epochs in a row must say the same.
_UP_AFTER = 3
_DOWN_AFTER = 20
_REST = 5
# Rows that wait, in epochs as the last one was, that call for more tasks.
_BACKLOG_EPOCHS = 2
# An epoch that takes less than this part of its target does not need its tasks.
_IDLE = 0.25


@dataclass
class Autoscale:
    """Doubles and halves between one task and a maximum.

    Attributes:
        most: No more tasks than this.
        target_us: How long an epoch should take.
    """

    most: int
    target_us: int
    _behind: int = 0
    _idle: int = 0
    _rest: int = 0

    def wanted(
        self, parallelism: int, *, rows: int, lag_rows: int, took_us: int
    ) -> int:
        """Learn from an epoch; return how many tasks there should be.

        Args:
            parallelism: The tasks that there were.
            rows: The rows of the epoch.
            lag_rows: Rows that wait.
            took_us: How long it took.
        """
        self._rest = max(0, self._rest - 1)
        is_behind = lag_rows > _BACKLOG_EPOCHS * max(1, rows)
        is_idle = lag_rows == 0 and took_us < _IDLE * self.target_us
        self._behind = self._behind + 1 if is_behind else 0
        self._idle = self._idle + 1 if is_idle else 0
        if self._rest:
            return parallelism
        if self._behind >= _UP_AFTER and parallelism < self.most:
            return self._changed(min(self.most, parallelism * 2))
        if self._idle >= _DOWN_AFTER and parallelism > 1:
            return self._changed(parallelism // 2)
        return parallelism

    def _changed(self, parallelism: int) -> int:
        self._behind = self._idle = 0
        self._rest = _REST
        return parallelism
