"""Sweeps files that were staged below an output directory and are no longer needed.

Those of another copy of the store stay: it may not have committed them yet.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.connectors.builtin_stagers import STAGED
from riverlock.storage.object import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.connectors.base.committer import Owner

__all__ = ["sweep_staged"]


def sweep_staged(root: str, epoch: int, owner: Owner | None, *runs: str) -> None:
    """Remove what was staged for an epoch and those before: it is committed, or dead.

    Args:
        root: The output directory.
        epoch: The newest that is committed.
        owner: Whose runs' files to remove.
        runs: Tokens of further runs whose files to remove.
    """

    def is_ours(token: str) -> bool:
        known = token in ("unknown", *runs) or (
            owner is not None and token == owner.token
        )
        return known or (owner is not None and owner.past.has_token(token))

    if "://" in root:
        storage = ObjectStorage(root)
        for entry in list(storage.list(STAGED)):
            number, _, rest = entry.path.removeprefix(STAGED).partition("/")
            token, _, _ = rest.partition("/")
            if number.isdecimal() and int(number) <= epoch and is_ours(token):
                storage.delete(entry.path)
        return
    for folder in _folders(Path(root, STAGED)):
        if not folder.name.isdecimal() or int(folder.name) > epoch:
            continue
        for run in _folders(folder):
            if is_ours(run.name):
                shutil.rmtree(run, ignore_errors=True)
        with contextlib.suppress(OSError):  # others have files in it
            folder.rmdir()


def _folders(place: Path) -> Iterator[Path]:
    return (
        (p for p in list(place.iterdir()) if p.is_dir()) if place.is_dir() else iter(())
    )
