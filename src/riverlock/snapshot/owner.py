"""Who owns a region, and does its heart beat? Read by newcomers and by ``status``."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.format.sealed import read_hint

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Run

__all__ = ["Beat", "Life", "ended_well", "life_of", "process_start", "read_beat"]

# Several beats: a busy machine or a slow store delays one or two.
_SILENCE_SECONDS = 5.0


class Beat(msgspec.Struct):
    """``owner.json``: overwritten every second by the owner."""

    run: int
    host: str
    pid: int
    started: str  # start time of the process, against reused pids
    count: int
    has_ended: bool = False
    # It ended, but in the middle of its work.
    has_failed: bool = False


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a run without waiting for its next beat."""

    is_alive: bool
    has_ended: bool = False  # by itself, having said so
    is_starting: bool = False  # claimed, and has not beaten yet
    silent_seconds: float | None = None  # since the last beat

    @property
    def is_beating(self) -> bool:
        """Whether it was alive just now, not only its process."""
        silent = self.silent_seconds
        return self.is_alive and (silent is None or silent <= _SILENCE_SECONDS)


def process_start(pid: int) -> str | None:
    """Return what distinguishes two processes with the same pid; None if not alive."""
    if not Path("/proc/self/stat").exists():  # not Linux: a reused pid is not noticed
        return "alive" if _exists(pid) else None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def read_beat(catalog: Catalog) -> Beat | None:
    """Return the last heartbeat of the region, if there is one."""
    try:
        return read_hint(catalog.storage.get(catalog.paths.owner), Beat)
    except StorageNotFoundError:
        return None


def ended_well(catalog: Catalog) -> bool:
    """Tell whether the newest run, if there was one, ended with nothing half done."""
    numbers = [number for number, _ in catalog.listed_runs()]
    beat = read_beat(catalog)
    if not numbers or beat is None:
        return not numbers
    return beat.run == max(numbers) and beat.has_ended and not beat.has_failed


def life_of(catalog: Catalog, run: Run) -> Life:
    """Say at once whether a run is alive: by its process if it is here, or its beat."""
    beat = read_beat(catalog)
    is_here = run.host == socket.gethostname()
    if beat is None or beat.run != run.run:
        found = process_start(run.pid) if is_here else None
        starting = found is not None and run.process in ("", found)
        return Life(is_alive=starting, is_starting=starting)
    entry = catalog.storage.head(catalog.paths.owner)
    silent = None
    if entry is not None:
        silent = max(0.0, (datetime.now(UTC) - entry.mtime).total_seconds())
    if beat.has_ended:
        return Life(is_alive=False, has_ended=True, silent_seconds=silent)
    if is_here and beat.started:
        alive = process_start(beat.pid) == beat.started
    else:
        alive = silent is not None and silent <= _SILENCE_SECONDS
    return Life(is_alive=alive, silent_seconds=silent)
