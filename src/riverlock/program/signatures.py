"""What user code can be called with, checked when a flow is built."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.user_lines import function_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["check_function", "check_methods", "refuse_yield"]

# By number of arguments, unless the caller says it better.
_COUNTED = {1: "one record", 2: "two arguments", 3: "three arguments"}


def check_function(
    what: str, function: object, arguments: int, *, of: str | None = None
) -> None:
    """Refuse what cannot be called with this many arguments.

    Args:
        what: The method or argument that received it.
        function: What it received.
        arguments: How many it will be called with.
        of: Their names, for the error.

    Raises:
        InvalidFlowError: It is not a function, or has other parameters.
    """
    of = of or _COUNTED[arguments]
    if not callable(function):
        raise InvalidFlowError(
            what, expected=f"a function of {of}", found=repr(function)
        )
    found = _signature(function)
    if found is not None and not _takes(found, arguments):
        raise InvalidFlowError(
            what,
            expected=f"a function of {of}",
            found=f"{getattr(function, '__name__', 'one')}{found}",
        )
    _refuse_async(what, function)


def check_methods(
    process: object, uid: str, methods: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse methods that could not be called.

    Args:
        process: An instance of the user's class.
        uid: Its operator.
        methods: The names of the parameters, by method.

    Raises:
        InvalidFlowError: A method has other parameters, or is asynchronous.
    """
    for name, parameters in methods.items():
        method: Any = getattr(process, name, None)
        found = None if method is None else _signature(method)
        if found is None:
            continue
        what = f"{name} of operator {uid!r}"
        wanted = f"def {name}({', '.join(('self', *parameters))})"
        if not _takes(found, len(parameters)):
            given = inspect.signature(getattr(type(process), name, method))
            raise InvalidFlowError(
                what,
                expected=wanted,
                found=f"{name}{given.replace(return_annotation=given.empty)}",
                line=function_line(method),
            )
        _refuse_async(what, method, wanted)


def refuse_yield(process: object, uid: str, method: str) -> None:
    """Refuse a method that must not emit, and has a ``yield``.

    Raises:
        InvalidFlowError: It has.
    """
    found: Any = getattr(process, method, None)
    if inspect.isgeneratorfunction(found):
        raise InvalidFlowError(
            f"{method} of operator {uid!r}",
            expected="a method that emits nothing",
            found="one with a yield",
            hint="keep it in state, and emit it from on_event or on_timer",
            line=function_line(found),
        )


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return how something is called; None: only Python itself knows."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _takes(found: inspect.Signature, arguments: int) -> bool:
    try:
        found.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def _refuse_async(
    what: str, function: Callable[..., Any], wanted: str = "a plain function"
) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidFlowError(
            what,
            expected=wanted,
            found="an async function, which nothing would await",
            hint="write def instead of async def",
            line=function_line(function),
        )
