"""Stops in the user's own code: a debugger for an epoch that is replayed."""

from __future__ import annotations

import inspect
import pdb
import sys
from bdb import BdbQuit
from typing import TYPE_CHECKING, Any, TypeVar

from riverlock.core.errors import InvalidConfigError, RiverlockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.program.process import KeyedLogic

__all__ = ["Stepper", "user_functions"]

T = TypeVar("T")
_METHODS = (
    "on_event",
    "on_timer",
    "on_left",
    "on_right",
    "on_initial",
    "on_broadcast",
    "on_control",
)


def user_functions(process: KeyedLogic[Any]) -> list[Callable[..., Any]]:
    """Return what the user wrote of an operator: methods, or functions it was given."""
    methods = [getattr(type(process), name, None) for name in _METHODS]
    given = list(vars(process).values())
    return [
        f
        for f in (*methods, *given)
        if inspect.isfunction(f) and not f.__module__.startswith("riverlock.")
    ]


class Stepper:
    """Runs a task under ``pdb``, stopping where user code begins, and where it fails.

    Needs the thread that owns the terminal.
    """

    def __init__(self, debugger: pdb.Pdb | None = None) -> None:
        """Take a debugger; default: one on this terminal."""
        # Ctrl-C keeps its meaning: it ends the replay.
        self._pdb = debugger or pdb.Pdb(nosigint=True)

    def check(self, operator: str, process: KeyedLogic[Any]) -> None:
        """Set breakpoints in what the user wrote of an operator.

        Raises:
            InvalidConfigError: There is nothing of the user's to stop in.
        """
        functions = user_functions(process)
        if not functions:
            raise InvalidConfigError(
                "--pdb",
                expected="an operator with code of your own: a Process, or a function",
                found=f"operator {operator!r} ({type(process).__name__})",
                hint="choose one with --operator",
            )
        for function in functions:
            code = function.__code__
            self._pdb.set_break(
                code.co_filename, code.co_firstlineno, funcname=code.co_name
            )

    def run(self, work: Callable[[], T]) -> T:
        """Do some work; stops at breakpoints, and at what user code raises.

        Raises:
            KeyboardInterrupt: The user quit.
        """
        before = sys.gettrace()
        self._pdb.reset()
        # What is below here is ours: only breakpoints stop.
        self._pdb.botframe = sys._getframe()
        self._pdb.set_continue()
        sys.settrace(self._pdb.trace_dispatch)
        try:
            return work()
        except RiverlockError as error:
            sys.settrace(before)
            cause = error.__cause__
            if isinstance(cause, BdbQuit):
                raise KeyboardInterrupt from None
            if cause is not None:
                self._post_mortem(cause)
            raise
        finally:
            sys.settrace(before)

    def _post_mortem(self, cause: BaseException) -> None:
        """Look at where user code raised; its locals are as they were."""
        name = type(cause).__name__
        print(f"user code raised {name}: {cause}", file=self._pdb.stdout)
        self._pdb.reset()
        self._pdb.interaction(None, cause.__traceback__)
