"""The lock file of an LMDB environment, which LMDB maps into memory.

If a full disk cannot provide a mapped file, a signal ends the process. So we ask the
disk for all of it beforehand, where the answer is an error.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from riverlock.storage.base import Reason

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["READERS", "reserve"]

READERS = 1024
# What LMDB makes of it: 64 bytes for each reader, and a header.
_BYTES = 64 * (READERS - 1) + 192


def reserve(path: Path) -> None:
    """Have the disk allocate all of a lock file, which is made if there is none.

    Not while this process has it open: closing a file gives up the locks that the
    process has on it.

    Raises:
        StorageError: The disk is full.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        os.posix_fallocate(descriptor, 0, size or _BYTES)
    except OSError as error:
        # File systems that cannot reserve are used as they are.
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise Reason.FULL.error("open", str(path)) from error
    finally:
        os.close(descriptor)
