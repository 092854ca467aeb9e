"""Folders on a machine that others use too.

Working copies are believed, and hold what the state holds. So their folder must be our
own: in a place where everybody may write, somebody else may have made it before us, or
a link in its place, to read our state, to change it, or to have us write elsewhere.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_private"]


def make_private(folder: Path) -> None:
    """Make a folder that only we can use, or see that it is one.

    Raises:
        InvalidConfigError: It is somebody else's, or no folder; nothing was written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        _check(folder)


def _check(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        is_link = stat.S_ISLNK(found.st_mode)
        raise _not_ours(folder, "a link" if is_link else "a file")
    if found.st_uid != os.geteuid():
        raise _not_ours(folder, f"one of user {found.st_uid}")
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


def _not_ours(folder: Path, found: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"the folder {folder} of working copies",
        expected=f"a folder of user {os.geteuid()}, which runs the task",
        found=found,
        hint="nothing was read from it or written to it; give another place on local"
        " disk: working_dir=",
    )
