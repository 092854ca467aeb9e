"""What a sink will create in the file system, and whether it can."""

from __future__ import annotations

import os
from pathlib import Path

from riverlock.core.errors import InvalidConfigError

__all__ = ["check_can_make"]


def check_can_make(sink: str, path: str) -> None:
    """Check that a path, and the folders that lead there, can be created.

    Raises:
        InvalidConfigError: They cannot; nothing was changed.
    """
    nearest = next(p for p in Path(path).parents if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise InvalidConfigError(
            f"{path} of sink {sink!r}",
            expected="a place where a file can be created",
            found=f"{nearest}, which cannot be written",
        )
