"""What a manifest refers to: all that must exist as long as it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import Manifest, StateFile

__all__ = ["references", "source_lists", "state_files"]


def state_files(manifest: Manifest) -> list[StateFile]:
    """Return the state files of all operators."""
    return [f for state in manifest.operators.values() for f in state.files]


def source_lists(manifest: Manifest) -> list[str]:
    """Return the lists that offsets name in their field ``base``."""
    offsets = [o for r in manifest.inputs.values() for o in (r.start, r.end)]
    named = [o.get("base") for o in offsets if isinstance(o, dict)]
    return list(dict.fromkeys(path for path in named if isinstance(path, str)))


def references(manifest: Manifest) -> set[str]:
    """Return the paths of everything that a manifest needs."""
    return {f.path for f in state_files(manifest)} | set(source_lists(manifest))
