"""Named points at which a test may make this very process fail.

Crash safety cannot be tested from outside alone: the interesting moments last
microseconds. So the engine calls ``hit("P8")`` at every step whose crash must be
survivable, and a test names the step and the fault in the environment:

    RIVERLOCK_FAULTS="P8=kill@3;P3=enospc@7;P5=sleep:2.5@1"

reads "SIGKILL this process at the third hit of P8, ...". With
``RIVERLOCK_FAULTS_DIR`` naming a directory, hits are counted across all processes
that share it (driver, workers, restarts), and a file ``fired-<name>-<n>`` is written
before the fault acts, so that a test can prove that it happened.

Without ``RIVERLOCK_FAULTS`` a hit costs one check of a module variable. The
environment is read once, at import: workers inherit it.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

__all__ = [
    "DIRECTORY_VARIABLE",
    "EXIT_STATUS",
    "PLAN_VARIABLE",
    "POINTS",
    "VERB_POINTS",
    "Action",
    "Fault",
    "InjectedFault",
    "Injector",
    "active",
    "fired",
    "hit",
    "parse",
]

PLAN_VARIABLE: Final = "RIVERLOCK_FAULTS"
DIRECTORY_VARIABLE: Final = "RIVERLOCK_FAULTS_DIR"
EXIT_STATUS: Final = 17

POINTS: Final[dict[str, str]] = {
    "P1": "the plan of the epoch is logged, nothing has run",
    "P2": "inside user code, in a Python worker",
    "P3": "a change file is written but not yet durable",
    "P4": "the change file is durable, no sink has staged",
    "P5": "one of several sinks has staged",
    "P6": "everything is staged, nothing is decided",
    "P7": "while the manifest is written",
    "P8": "the manifest is durable, no sink has committed",
    "P9": "one of several sinks has committed",
    "P10": "all sinks have committed, the epoch is not marked so",
    "P11": "the epoch is marked committed, before cleaning",
    "P12": "in cleaning, compaction or upload",
    "R1": "recovery loads the newest manifest",
    "R2": "recovery loads state",
    "R3": "recovery resolves the outcome of sinks",
    "R4": "recovery is done, before the first new epoch",
}

# Of commands that act on a store, such as restore and fork.
VERB_POINTS: Final[dict[str, str]] = {
    "V1": "the store is claimed, or the fork registered; nothing else is done",
    "V2": "what the decision refers to is durable, nothing is decided",
    "V3": "the decision is durable, what follows from it is not done",
    "V4": "a part of what follows is done",
    "V5": "a pin is written, whether its epoch is still there is not known",
    "V6": "some output of undone epochs is out of sight, some is not",
    "V7": "it is announced which epochs will be deleted, all are there",
    "V8": "some regions have gone back, others have not",
}

_PAUSE_POLL_SECONDS: Final = 0.02
_FAULT = re.compile(
    r"(?P<point>\w+)=(?P<action>[a-z]+)(:(?P<value>[\d.]+))?@(?P<n>\d+)"
)


class InjectedFault(Exception):  # noqa: N818 - a fault of ours, not an error of users
    """Raised by the action ``raise``; nothing in the engine catches it by name."""


class Action(StrEnum):
    """What happens to the process that hits the point."""

    KILL = "kill"
    EXIT = "exit"
    RAISE = "raise"
    ENOSPC = "enospc"
    EIO = "eio"
    STOP = "stop"
    SLEEP = "sleep"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a plan: act at the ``at``-th hit of ``point``."""

    point: str
    action: Action
    at: int
    seconds: float = 0.0


def parse(plan: str) -> tuple[Fault, ...]:
    """Read a plan such as ``P8=kill@3;P3=sleep:5@1``.

    Raises:
        ValueError: If the plan is malformed or names an unknown point or action; a
            plan with a typing error would otherwise test nothing.
    """
    return tuple(_parse_one(part.strip()) for part in plan.split(";") if part.strip())


def _parse_one(text: str) -> Fault:
    match = _FAULT.fullmatch(text)
    if match is None:
        reason = f"fault {text!r} is not of the form POINT=ACTION[:SECONDS]@COUNT"
        raise ValueError(reason)
    _require_known(match["point"])
    at = int(match["n"])
    if at < 1:
        reason = f"fault {text!r} counts from 1"
        raise ValueError(reason)
    return Fault(
        point=match["point"],
        action=Action(match["action"]),
        at=at,
        seconds=float(match["value"] or 0.0),
    )


def _require_known(point: str) -> None:
    known = {**POINTS, **VERB_POINTS}
    if point not in known:
        reason = f"unknown fail point {point!r}; there are {', '.join(known)}"
        raise ValueError(reason)


@dataclass(slots=True, kw_only=True)
class Injector:
    """Counts hits and carries out the plan.

    Args:
        plan: The faults; several may name one point with different counts.
        directory: Where the count is shared; None counts in this process alone.
    """

    plan: tuple[Fault, ...]
    directory: Path | None = None
    _counts: Counter[str] = field(default_factory=Counter)

    def hit(self, point: str) -> None:
        """Count a hit of the point and act if a fault is due.

        Raises:
            ValueError: If the point is in neither table.
            InjectedFault: If the action is ``raise``.
            OSError: If the action is ``enospc`` or ``eio``.
        """
        _require_known(point)
        due = [fault for fault in self.plan if fault.point == point]
        if not due:
            return
        count = self._count(point)
        for fault in due:
            if fault.at == count:
                self._record(fault)
                self._act(fault)

    def _count(self, point: str) -> int:
        if self.directory is None:
            self._counts[point] += 1
            return self._counts[point]
        # Whoever creates hit-<point>-<n> made the n-th hit; no two can.
        count = self._counts[point]
        while True:
            count += 1
            if _create(self.directory / f"hit-{point}-{count}"):
                # What others took before is taken for good: continue from here.
                self._counts[point] = count
                return count

    def _record(self, fault: Fault) -> None:
        if self.directory is not None:
            _create(self.directory / f"fired-{fault.point}-{fault.at}")

    def _act(self, fault: Fault) -> None:
        match fault.action:
            case Action.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.EXIT:
                os._exit(EXIT_STATUS)
            case Action.RAISE:
                reason = f"injected at hit {fault.at} of {fault.point}"
                raise InjectedFault(reason)
            case Action.ENOSPC:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case Action.EIO:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            case Action.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Action.SLEEP:
                time.sleep(fault.seconds)
            case Action.PAUSE:
                self._pause(fault.point)
            case _:
                assert_never(fault.action)

    def _pause(self, point: str) -> None:
        if self.directory is None:
            reason = f"action pause needs {DIRECTORY_VARIABLE}"
            raise ValueError(reason)
        resume = self.directory / f"resume-{point}"
        while not resume.exists():
            time.sleep(_PAUSE_POLL_SECONDS)


def _create(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def fired(directory: Path) -> list[str]:
    """List the faults that acted, as ``<point>-<count>``, for a test to assert."""
    prefix = "fired-"
    return sorted(
        path.name.removeprefix(prefix) for path in directory.glob(f"{prefix}*")
    )


def _from_environment() -> Injector | None:
    plan = os.environ.get(PLAN_VARIABLE, "")
    if not plan:
        return None
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return Injector(plan=parse(plan), directory=Path(directory) if directory else None)


# The one exception to "no module-level state": the price of a hit in production
# must be one check, and the environment cannot be passed as a parameter to workers.
_injector: Final = _from_environment()
_ACTIVE: Final = _injector is not None


def active() -> bool:
    """Tell whether this process has a plan of faults."""
    return _ACTIVE


def hit(name: str) -> None:
    """Fail here if the environment asks for it; otherwise do nothing.

    Raises:
        ValueError: If faults are active and the name is in neither table.
        InjectedFault: If the plan says ``raise``.
        OSError: If the plan says ``enospc`` or ``eio``.
    """
    if _ACTIVE and _injector is not None:
        _injector.hit(name)
