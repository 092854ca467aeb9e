"""What user code did with one key: each event or timer, state around it, and rows.

A subclass of the user's own class looks on: it reads the declared state before and
after each call, and what the call emitted. Nothing else is different.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from riverlock.operators.base import BuiltIn
from riverlock.program.process import Process
from riverlock.state.spec import List, Map, Reducing, specs_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.operators.shipped import OperatorProgram
    from riverlock.state.spec import StateSpec

__all__ = ["KeyStep", "KeySteps"]


@dataclass(frozen=True, kw_only=True)
class KeyStep:
    """One call of user code for a key.

    Attributes:
        epoch: The epoch.
        what: ``event``, ``timer`` or ``initial``.
        given: The record, or the instant of the timer, as text.
        before: The key's state before the call, by name; what is not set has its
            default.
        after: The same after it.
        rows: The rows of the main output that it emitted, as they were given.
    """

    epoch: int
    what: str
    given: str
    before: dict[str, Any]
    after: dict[str, Any]
    rows: tuple[Any, ...]


@dataclass
class KeySteps:
    """Collects the steps of an operator."""

    steps: list[KeyStep] = field(default_factory=list)

    def watch(self, program: OperatorProgram) -> OperatorProgram:
        """Return the same operator, whose calls are noted; ours are left alone."""
        if isinstance(program.process, BuiltIn):
            return program
        watched = copy.copy(program.process)
        watched.__class__ = self._watching(type(program.process))
        # Code that is written into the loop is not called.
        return dataclasses.replace(program, process=watched, source=None)

    def _watching(self, kind: type[Any]) -> type[Any]:
        specs = {n: s for n, s in specs_of(kind).items() if s.scope == "key"}
        methods = {"on_event": "event", "on_timer": "timer", "on_initial": "initial"}
        made = {
            name: self._noting(getattr(kind, name), what, specs)
            for name, what in methods.items()
            if getattr(kind, name) is not getattr(Process, name)
        }
        return type(kind.__name__, (kind,), {**made, "__module__": kind.__module__})

    def _noting(
        self, method: Callable[..., Any], what: str, specs: dict[str, StateSpec]
    ) -> Callable[[Any, Any, Any], Any]:
        def noted(user: Any, given: Any, ctx: Any) -> Any:
            before = _state(user, specs)
            result = method(user, given, ctx)
            # Anything else is no rows, and refused as ever.
            if isinstance(result, GeneratorType):
                result = list(result)
            rows = result if isinstance(result, list | tuple) else ()
            self.steps.append(
                KeyStep(
                    epoch=ctx.epoch,
                    what=what,
                    given=str(given) if what == "timer" else repr(given),
                    before=before,
                    after=_state(user, specs),
                    rows=tuple(rows),
                )
            )
            return result

        return noted


def _state(user: Any, specs: dict[str, StateSpec]) -> dict[str, Any]:
    """Return the state of the current key as plain values."""
    found: dict[str, Any] = {}
    for name, spec in specs.items():
        value = getattr(user, name)
        match spec:
            case List():
                found[name] = list(value)
            case Map():
                found[name] = dict(value)
            case Reducing():
                found[name] = value.value
            case _:
                found[name] = copy.deepcopy(value)
    return found
