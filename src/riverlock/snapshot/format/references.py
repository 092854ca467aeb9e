"""What a manifest refers to: all that must exist as long as it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.snapshot.format.parents import holds
from riverlock.snapshot.format.records import CHANNEL

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import FileList, Manifest, StateFile
    from riverlock.storage.base import Storage

__all__ = [
    "channel_files",
    "file_lists",
    "first_missing",
    "references",
    "source_lists",
    "state_files",
]

# Above this, files are looked for in a listing and not one by one.
_MANY = 1_000


def state_files(manifest: Manifest) -> list[StateFile]:
    """Return the state files of all operators."""
    return [f for state in manifest.operators.values() for f in state.files]


def file_lists(manifest: Manifest) -> list[FileList]:
    """Return the lists of state files of all operators (format §4.6)."""
    return [each for state in manifest.operators.values() for each in state.lists]


def source_lists(manifest: Manifest) -> list[str]:
    """Return the lists that offsets name in their field ``base``."""
    offsets = [o for r in manifest.inputs.values() for o in (r.start, r.end)]
    named = [o.get("base") for o in offsets if isinstance(o, dict)]
    return list(dict.fromkeys(path for path in named if isinstance(path, str)))


def channel_files(manifest: Manifest) -> list[str]:
    """Return the files that an epoch has added to channels."""
    channels = [o for o in manifest.outputs.values() if o.kind == CHANNEL]
    return [token["path"] for output in channels for token in output.tokens]


def references(manifest: Manifest) -> set[str]:
    """Return the paths of everything that a manifest needs."""
    return {
        *(f.path for f in state_files(manifest)),
        *(f.path for f in file_lists(manifest)),
        *source_lists(manifest),
        *channel_files(manifest),
    }


def first_missing(storage: Storage, needed: set[str], *, below: str) -> str | None:
    """Return a file that does not exist, of those that are needed; None: all do.

    Args:
        storage: The store.
        needed: Their paths.
        below: The folder that has most of them.
    """
    listed: set[str] = set()
    if len(needed) > _MANY:  # a listing names a thousand at the price of one question
        listed.update(entry.path for entry in storage.list(below))
    left = sorted(needed - listed)
    return next((path for path in left if not holds(storage, path)), None)
