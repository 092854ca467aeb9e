"""Rows that are added behind the position: a table put back, or numbers begun anew."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.connectors.databases.reading.offsets import decoded, encoded
from riverlock.connectors.databases.reading.questions import VALUE
from riverlock.core.errors import SourceError

if TYPE_CHECKING:
    from riverlock.connectors.databases.reading.questions import Database
    from riverlock.connectors.databases.reading.selection import Selection

__all__ = ["AddedBehind"]

log = logging.getLogger(__name__)


@dataclass
class AddedBehind:
    """Notices new rows that would never be read; asked while no others are new.

    It compares the newest row that is not behind the position with the one that the
    look before found. Rows may be deleted, so an older one proves nothing. A newer one
    was added since.

    Attributes:
        database: Where the rows are.
        uid: Of the source.
        column: The name of the column.
    """

    database: Database
    uid: str
    column: str
    _position: Any = None
    _newest: Any = None

    def look(self, chosen: Selection, position: Any) -> None:
        """Compare with the look before.

        Raises:
            SourceError: A row was added that lies behind the position.
        """
        before, last = self._newest, self._position
        self._position, self._newest = position, self._last(chosen, None, position)
        if last is None and self._newest not in (None, position):
            self._warn(position)  # at the start only: rows may be deleted at any time
        if last != position or self._newest == before:
            return
        added = self._last(chosen, before, position)
        if added is not None:
            raise SourceError(
                self.uid,
                what=f"a row with {self.column} = {_shown(added)} was added, though"
                f" rows up to {_shown(position)} were read before: it would never be"
                " read. The table was put back from a backup, or its numbering"
                " restarted",
                hint="nothing was read; see which rows were read twice or not at all,"
                " and go on with a source that has another uid and after=, the last"
                f" {self.column} that need not be read",
            )

    def _last(self, chosen: Selection, after: Any, position: Any) -> Any:
        """Return the greatest value up to the position, if it is behind another."""
        bounds = [("<=", position), *([] if after is None else [(">", after)])]
        where = " AND ".join(f"{chosen.column} {sign} {VALUE}" for sign, _ in bounds)
        found = self.database.ask(
            f"SELECT {chosen.column} FROM {chosen.source} WHERE {where}"
            f" ORDER BY {chosen.column} DESC LIMIT 1",
            *(decoded(value) for _, value in bounds),
        )
        return encoded(found[0][0]) if found else None

    def _warn(self, position: Any) -> None:
        log.warning(
            "source %r: rows up to %s = %s were read, but the newest row has %s: rows"
            " were deleted, or the table was put back from a backup; rows that were"
            " added with smaller values since are not read",
            self.uid,
            self.column,
            _shown(position),
            _shown(self._newest),
        )


def _shown(value: Any) -> str:
    return repr(decoded(value))
