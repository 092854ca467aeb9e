"""How far the workers of another engine have come, by the notes that they leave."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.common import Epoch

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.common import Window


def watched(
    notes: Path, window: Window, workers: Sequence[subprocess.Popen[bytes]]
) -> list[Epoch]:
    """Return a second each as an epoch.

    Args:
        notes: A folder with a file per worker: how many records it has handled.
        window: Which seconds are measured.
        workers: Who must not end before they are over.
    """
    found: list[Epoch] = []
    began = last = time.monotonic()
    before = 0
    while not window.is_over(began, len(found)):
        time.sleep(1)
        assert all(worker.poll() is None for worker in workers), "a worker has ended"
        seen = sum(int(p.read_text()) for p in notes.iterdir() if not p.suffix)
        now = time.monotonic()
        if seen > before:
            found.append(Epoch(now - last, seen - before))
            window.note(began, len(found))
            last, before = now, seen
    return window.steady(found)
