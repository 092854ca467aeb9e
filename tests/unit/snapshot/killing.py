"""Kills a process in the middle of a step: a forked child, which starts at once."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from riverlock.core import faults


def arm(point: str, *, count: int = 1) -> None:
    """Have this process killed at a fail point, counted from now on."""
    module: Any = faults
    module._injector = faults.Injector(plan=faults.parse(f"{point}=kill@{count}"))
    module._ACTIVE = True


def beside(step: Callable[[], object]) -> int:
    """Run a step in a child, beside us; returns its process id."""
    with warnings.catch_warnings():
        # Newer Pythons warn if there are threads: the child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            step()
            code = 0
        except BaseException:  # noqa: BLE001 - the process ends, and must say why
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def killed(step: Callable[[], object]) -> bool:
    """Run a step in a child; tells whether the child was killed in it."""
    _, status = os.waitpid(beside(step), 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def killed_at(point: str, step: Callable[[], object], *, count: int = 1) -> bool:
    """Run a step in a child that is killed at a fail point; whether it came so far."""

    def armed() -> None:
        arm(point, count=count)
        step()

    return killed(armed)
