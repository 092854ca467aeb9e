"""A process and all that it started, by what Linux tells of them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def descendants(process: Path) -> Iterator[Path]:
    """Give the folders of ``/proc`` of all that a process started, and these did."""
    for thread in process.glob("task/*/children"):
        with suppress(OSError):  # it may be gone by now
            for pid in thread.read_text().split():
                yield Path("/proc", pid)
                yield from descendants(Path("/proc", pid))


def kill_with_descendants(pid: int) -> None:
    """End a process and all that it started at once, as a machine does that fails."""
    started = list(descendants(Path("/proc", str(pid))))
    os.kill(pid, signal.SIGKILL)
    for each in started:
        with suppress(ProcessLookupError):
            os.kill(int(each.name), signal.SIGKILL)
