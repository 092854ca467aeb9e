"""What a manifest refers to: all that must exist as long as it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.snapshot.format.records import CHANNEL

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import Manifest, StateFile

__all__ = ["channel_files", "references", "source_lists", "state_files"]


def state_files(manifest: Manifest) -> list[StateFile]:
    """Return the state files of all operators."""
    return [f for state in manifest.operators.values() for f in state.files]


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
        *source_lists(manifest),
        *channel_files(manifest),
    }
