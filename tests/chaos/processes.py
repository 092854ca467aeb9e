"""Processes by number, as /proc shows them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for a condition; the one place of the chaos tests that polls."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    """Return the processes below a process, itself excluded."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, _, rest = stat.read_text().partition(" (")
            parent = int(rest.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(number))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def start_of(pid: int) -> str | None:
    """Return when a process began, in ticks; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    found = stat.rpartition(")")[2].split()
    return None if found[0] == "Z" else found[19]


def jvm_of(pid: int) -> int | None:
    """Return the Java virtual machine below a driver; None if there is none yet."""
    # Parents come first: what the JVM starts has its name until it becomes itself.
    return next((each for each in descendants(pid) if _comm(each) == "java"), None)


def workers_of(pid: int) -> list[int]:
    """Return the Python workers below a driver: those that the daemon has forked."""
    jvm = jvm_of(pid)
    below = [] if jvm is None else descendants(jvm)
    return [each for each in below if not descendants(each) and _comm(each) != "java"]


def _comm(pid: int) -> str | None:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return None
