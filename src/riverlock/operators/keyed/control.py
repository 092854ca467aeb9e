"""Which method handles a record: ``on_event``, or ``on_control`` of a control input.

Both inputs travel as two connected streams do: the control input is the right one, so
that what it brings in an epoch is handled before the records of that epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.state.columns.python_rows import RowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.operators.shipped import OperatorProgram

    Handler = Callable[[Any, OperatorContext], Iterable[Any] | None]

__all__ = ["handled_by", "handler_of", "silently"]


def handler_of(user: Any, program: OperatorProgram) -> Handler:
    """Return what handles the records of an operator, whichever input they are of."""
    on_event: Handler = user.on_event
    if not program.has_control:
        return on_event
    on_control: Handler = user.on_control

    def handle(record: Any, ctx: OperatorContext) -> Iterable[Any] | None:
        if not record._rl_is_right:
            return on_event(record, ctx)
        ctx.is_silent = True
        try:
            silently(on_control, record, ctx)
        finally:
            ctx.is_silent = False
        return None

    return handle


def handled_by(program: OperatorProgram, record: Any) -> str:
    """Return the name of the method that handles a record."""
    is_control = program.has_control and record._rl_is_right
    return "on_control" if is_control else "on_event"


def silently(call: Callable[..., Any], *args: Any) -> None:
    """Call what cannot emit rows; a ``yield`` in it would make it do nothing."""
    if call(*args) is not None:
        raise RowError("only on_event and on_timer can yield or return rows")
