"""Processes are killed in tests, machines are not: nothing needs to reach the disk.

To wait for a disk is what most commits of a small epoch would do.
"""

from __future__ import annotations

import os


def without_sync() -> None:
    """Let this process, and what it forks, write without waiting for the disk."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _pretend)


def _pretend(descriptor: int) -> None:
    """Notice, as the system would, what is not open."""
    os.fstat(descriptor)
