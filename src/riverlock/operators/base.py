"""What every operator is: a declaration, bound to its input, then run in tasks.

``bound`` → ``run`` → ``Effects``. A flow makes an operator with what the user said.
When the flow is compiled, the columns of its input are known, and ``bound`` returns
the operator with state and output declared. It travels to the workers, and ``run`` is
called once per task and epoch. The caller does not know of what kind it is, so a new
kind of operator touches only its own folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.program.process import KeyedLogic
from riverlock.program.unkeyed import ALL_RECORDS
from riverlock.state.copy.memories import Memories

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    import pyarrow as pa

    from riverlock.core.types import Schema
    from riverlock.operators.effects import Effects
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.operators.shipped import EpochInfo, OperatorProgram
    from riverlock.program.process import SideOutput
    from riverlock.state.layout import StateLayout
    from riverlock.state.spec import StateSpec
    from riverlock.state.store import StateReader

__all__ = ["GONE", "LATE", "UPDATES", "BuiltIn", "Work", "bind", "key_tuple"]

# The side output of records that came too late; they are counted.
LATE = "late"
# The output of windows with every change of theirs, not only what is final.
UPDATES = "updates"
# The column of updates that says that a row is taken back.
GONE = "gone"


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an operator runs on: the part of one epoch that one task does.

    Attributes:
        program: The operator, with all that was resolved when the flow was compiled.
        layout: How its state is stored.
        reader: The state at the start of the epoch; open as long as ``run`` lasts.
        info: What is the same for all tasks of the epoch.
        table: The input of the task; None: only time has passed.
        wanted: The outputs that somebody reads; no others need be made.
        memories: What operators remember in this process, at the version of ``reader``.
        is_first: Whether this task records for all what all tasks do alike.
        on_prepared: Called once, when the input is in order and before any of it is
            handled.
        on_handled: Called once, when all of it is handled and before outputs are made.
    """

    program: OperatorProgram
    layout: StateLayout
    reader: StateReader
    info: EpochInfo
    table: pa.Table | None
    wanted: Collection[str]
    memories: Memories = field(default_factory=Memories)
    is_first: bool = True
    on_prepared: Callable[[], None] = _nothing
    on_handled: Callable[[], None] = _nothing

    @property
    def outputs(self) -> list[str]:
        """The declared outputs that somebody reads."""
        return [name for name in self.program.outputs if name in self.wanted]


class BuiltIn(KeyedLogic["OperatorContext"]):
    """An operator of ours: state and output are declared once its input is known.

    Order of calls: ``bound`` once, on the driver; ``run`` for each task and epoch, in
    workers, on copies. ``run`` may be repeated for the same epoch, also in another
    process at the same time, and must return the same effects: it depends on its work
    alone, and changes nothing outside.

    Attributes:
        is_by_key: Whether it handles one key after the other.
        sides: Names of its side outputs, which are declared together with the state.
        lends: Whether user functions get its values, and may change them in place. Our
            own code assigns what it changes.
        keeps_all_keys: Whether it forgets no key, and has no option to do so.
    """

    is_by_key = False
    sides: tuple[str, ...] = ()
    lends = False
    keeps_all_keys = False

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Return the operator for an input; ``bind`` makes it.

        Raises:
            InvalidFlowError: It cannot do its work on these columns.
        """
        raise AssertionError

    def state_keys(self, keys: Schema) -> Schema:
        """Return the columns that state is stored by; given are those of the key."""
        return keys if keys.fields else ALL_RECORDS

    def updated(self, output: Schema) -> Schema:
        """Return the columns of its updates, from those of its rows."""
        return output

    def end_key(self, ctx: OperatorContext) -> Iterable[Any] | None:
        """Emit the result of a key's turn, after its records and timers.

        Only for operators that handle keys one by one.
        """

    def give_up_timer(self, at: datetime) -> None:
        """Forget what waited for a timer whose handling raised; there are dead letters.

        Only for operators that handle keys one by one.
        """

    @classmethod
    def has_own(cls, method: str) -> bool:
        """Whether an operator has its own version of a method."""
        return getattr(cls, method) is not getattr(BuiltIn, method)

    def run(self, work: Work) -> Effects:
        """Handle the input of one task and epoch.

        Raises:
            RiverlockError: User code raised and there are no dead letters, or a value
                fits no declared type, or the state cannot be read.
        """
        raise AssertionError


def bind(
    process: BuiltIn, output: Schema, attributes: Mapping[str, StateSpec | SideOutput]
) -> BuiltIn:
    """Return a copy of a process whose class declares state and side outputs."""
    kind = type(process)
    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, **attributes})
    bound: BuiltIn = object.__new__(made)
    bound.__dict__.update(process.__dict__)
    bound.output = output
    return bound


def key_tuple(key: Any, width: int) -> tuple[Any, ...]:
    """Return the values of a key as user code sees it: one value, or a tuple."""
    return (key,) if width == 1 else key
