"""What a Delta table's own history says: whether RESTORE has undone epochs.

RESTORE removes rows and leaves application transactions as they are, so the table still
says that it has the epochs. Each of our commits has a note of its epoch; whether the
note comes before or after a RESTORE tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Sight", "note", "sight_of"]

_NOTE = "riverlock"
# Entries that are read: ours is the newest, or a few behind what others did since.
_FEW, _MANY = 20, 1_000


@dataclass(frozen=True)
class Sight:
    """What readers see of a table that was restored.

    Attributes:
        epoch: The newest epoch in sight; None: none, or unknown.
    """

    epoch: int | None


def note(application: str, epoch: int) -> dict[str, str]:
    """Return the note of a commit for the table's history."""
    return {_NOTE: f"{application} {epoch}"}


def sight_of(table: Any, application: str, newest: int) -> Sight | None:
    """Return what is in sight; None: the table was not restored, as far as is known.

    Args:
        table: A ``DeltaTable``.
        application: Whose epochs are meant.
        newest: The newest epoch that the table says it has.
    """
    entries: list[dict[str, Any]] = []
    for limit in (_FEW, _MANY):
        entries = table.history(limit)
        told = [_epoch(entry, application) for entry in entries]
        if newest in told:
            break
        if len(entries) < limit:
            return None
    else:
        return None
    since = entries[: told.index(newest)]
    if not any(entry.get("operation") == "RESTORE" for entry in since):
        return None
    return Sight(_shown(entries, application))


def _shown(entries: list[dict[str, Any]], application: str) -> int | None:
    """Follow what was restored to what; versions after that are out of sight."""
    last: int | None = None
    for entry in entries:
        if last is not None and entry["version"] > last:
            continue
        if entry.get("operation") == "RESTORE":
            target = (entry.get("operationParameters") or {}).get("version")
            if target is None:
                return None  # to an instant
            last = int(target)
        elif (epoch := _epoch(entry, application)) is not None:
            return epoch
    return None


def _epoch(entry: dict[str, Any], application: str) -> int | None:
    """Return the epoch that a commit of ours has added."""
    whose, _, epoch = str(entry.get(_NOTE, "")).rpartition(" ")
    return int(epoch) if whose == application and epoch.isdecimal() else None
