"""Which values of a growing column are settled: nobody can add smaller ones any more.

Rows become visible when their transactions commit, not in the order of their values. A
row that commits after one with a greater value was read would be missed for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from riverlock.core.errors import SourceError

if TYPE_CHECKING:
    from riverlock.connectors.databases.reading.questions import Database

__all__ = ["Settling", "open_transactions"]

_PREPARED: Final = "prepared "
# Each running transaction holds a lock on its own number from its beginning until all
# of its rows are visible. Also those that have not written yet are listed: now() is the
# time at which they began. Vacuum adds no rows, and takes long.
_OPEN: Final = f"""
SELECT l.virtualtransaction
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'virtualxid' AND l.virtualxid = l.virtualtransaction
  AND l.pid <> pg_backend_pid()
  AND a.datid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
UNION ALL
SELECT '{_PREPARED}' || gid FROM pg_prepared_xacts WHERE database = current_database()
"""


def open_transactions(database: Database, uid: str) -> frozenset[str]:
    """Return the transactions of others that are open now.

    Raises:
        SourceError: A replica was asked, which does not know those of its primary.
    """
    if database.ask("SELECT pg_is_in_recovery()")[0][0]:
        raise SourceError(
            uid,
            what=f"{database.address} is a replica: it cannot tell which transactions"
            " of writers are open",
            hint='write delay="30 seconds", the longest time that one may take',
        )
    return frozenset(name for (name,) in database.ask(_OPEN))


@dataclass
class _Waiting:
    value: Any
    since_us: int
    # Those that were open when the value was there, and have not ended since.
    behind: frozenset[str]


@dataclass
class Settling:
    """Remembers the greatest value of a moment until it is settled.

    Attributes:
        delay_us: How long the value must have been there.
        settled: The greatest value that is settled so far.
    """

    delay_us: int
    settled: Any = None
    _waiting: _Waiting | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a value has been seen that is not settled."""
        return self._waiting is not None

    def see(self, newest: Any, open_now: frozenset[str], now_us: int) -> None:
        """Learn the greatest value, then which transactions were open after that."""
        self._look(open_now, now_us)
        if self._waiting is None and newest not in (None, self.settled):
            self._waiting = _Waiting(newest, now_us, open_now)
            self._look(open_now, now_us)

    def _look(self, open_now: frozenset[str], now_us: int) -> None:
        waiting = self._waiting
        if waiting is None:
            return
        ended = waiting.behind - open_now
        waiting.behind &= open_now
        if not all(map(_is_prepared, ended)):
            # It may have been prepared since, which gives it another name.
            waiting.behind |= set(filter(_is_prepared, open_now))
        if not waiting.behind and now_us - waiting.since_us >= self.delay_us:
            self.settled, self._waiting = waiting.value, None


def _is_prepared(name: str) -> bool:
    return name.startswith(_PREPARED)
