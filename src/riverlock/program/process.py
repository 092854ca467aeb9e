"""User-defined keyed logic: ``f(event, state, time)`` as a class."""

from __future__ import annotations

from difflib import get_close_matches
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from riverlock.core.errors import DefinitionError, InvalidFlowError
from riverlock.core.types import Schema, SchemaLike, schema_of
from riverlock.program.context import Context
from riverlock.program.params import params_of
from riverlock.program.signatures import check_methods
from riverlock.state.spec import specs_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

__all__ = ["KeyedLogic", "Process", "SideOutput", "check_process", "side_outputs"]

_RECORD = ("record", "ctx")
_METHODS = {
    "open": (),
    "on_event": _RECORD,
    "on_timer": ("at", "ctx"),
    "on_broadcast": _RECORD,
    "on_control": _RECORD,
    "on_initial": _RECORD,
    "on_left": _RECORD,
    "on_right": _RECORD,
}


class SideOutput:
    """A second stream out of a process: ``ctx.emit(self.odd, row)``."""

    def __init__(self, schema: SchemaLike) -> None:
        """Declare its columns (DDL, StructType or dataclass)."""
        self.schema = schema_of(schema)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the attribute's name."""
        self.name = name


ContextT = TypeVar("ContextT", contravariant=True)


class KeyedLogic(Generic[ContextT]):
    """What users' processes and our own operators have in common.

    ``ContextT`` is what their methods get besides the record. Whoever provides more
    than that can run it.

    Attributes:
        output: Columns of the rows it yields; None for one that yields nothing.
    """

    output: SchemaLike | None = None

    def open(self) -> None:
        """Prepare the instance in the worker, before the first key of an epoch."""

    def on_event(self, record: Any, ctx: ContextT) -> Iterable[Any] | None:
        """Handle a record of the stream."""
        raise NotImplementedError

    def on_timer(self, at: datetime, ctx: ContextT) -> Iterable[Any] | None:
        """Handle a timer that was set for this key."""

    def on_broadcast(self, record: Any, ctx: ContextT) -> None:
        """Handle a record of the broadcast stream; every task sees it."""

    def on_control(self, record: Any, ctx: ContextT) -> None:
        """Handle a record of the control input: change state and timers, emit nothing.

        What it brings in an epoch is handled before the events of that epoch.
        """

    def on_initial(self, record: Any, ctx: ContextT) -> None:
        """Take a row of the initial state, before the first event."""


class Process(KeyedLogic[Context]):
    """Keyed logic with declared state, timers and side outputs.

    Override the methods you need. Each may ``yield`` rows (tuples in column order, or
    dictionaries) or return a list of rows. All events and timers of a key are handled
    one after the other, in a fixed order: due timers by time, then events in input
    order. Events that come from another keyed operator are handled before due timers,
    since the rows that a watermark causes come before it. The instance is shared by all
    keys of a task: keep what belongs to a key in declared state, and constants in
    ``__init__`` or ``open``. An epoch that leaves other attributes fails.

    Attributes:
        output: Columns of the rows it yields; None for a process that yields nothing.
    """


def side_outputs(owner: type) -> dict[str, SideOutput]:
    """Return the declared side outputs, base classes first."""
    found: dict[str, SideOutput] = {}
    for cls in reversed(owner.__mro__):
        found |= {n: a for n, a in vars(cls).items() if isinstance(a, SideOutput)}
    return found


def overrides(process: KeyedLogic[Any], method: str) -> bool:
    """Tell whether a process has its own version of a method."""
    return getattr(type(process), method) is not getattr(KeyedLogic, method)


def check_process(process: object, uid: str) -> Schema | None:
    """Check a process before anything runs; return its output columns.

    Raises:
        InvalidFlowError: It is not a process, or a declaration is impossible.
    """
    what = f"process of operator {uid!r}"
    if isinstance(process, type):
        raise InvalidFlowError(
            what,
            expected="an instance of a Process",
            found=f"the class {process.__name__}",
            hint=f"write {process.__name__}()",
        )
    if not isinstance(process, KeyedLogic):
        raise InvalidFlowError(what, expected="a Process", found=repr(process))
    if not overrides(process, "on_event"):
        raise InvalidFlowError(
            what,
            expected="a method on_event",
            found=type(process).__name__,
            hint=_rename(process),
        )
    check_methods(process, uid, _METHODS)
    for cls in type(process).__mro__:
        # Their values are not where those of the instance are.
        slots = [n for n, a in vars(cls).items() if type(a) is MemberDescriptorType]
        if slots:
            raise InvalidFlowError(
                what, expected="no __slots__", found=f"{cls.__name__} with {slots}"
            )
    specs, params = specs_of(type(process)), params_of(type(process))
    assert not set(specs) & set(side_outputs(type(process)))
    for name in params:
        if name in specs:  # of a base class
            raise InvalidFlowError(
                f"parameter {name!r} of operator {uid!r}",
                expected="a name of its own",
                found="state of the same name",
            )
    if process.output is None:
        return None
    try:
        return schema_of(process.output)
    except DefinitionError as error:
        raise InvalidFlowError(
            f"output of operator {uid!r}",
            expected=error.expected,
            found=error.found,
            hint=error.hint,
        ) from error


def _rename(process: object) -> str:
    """Return the method that was probably meant to be ``on_event``; empty: none."""
    own = [n for n in dir(process) if n not in dir(KeyedLogic)]
    near = get_close_matches("on_event", own, n=1)
    return f"rename {near[0]} to on_event" if near else ""
