"""Where the code of a process mentions an attribute, read from its bytecode."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from riverlock.operators.base import BuiltIn
from riverlock.program.process import KeyedLogic, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["place_of", "users_code"]

_ASSIGNS = ("STORE_ATTR", "DELETE_ATTR")
# A value that is never assigned is read, and changed in place.
_READS = ("LOAD_ATTR", "LOAD_METHOD")


def place_of(process: KeyedLogic[Any], name: str) -> str | None:
    """Return where code of the user first assigns an attribute, or else reads it."""
    for operations in (_ASSIGNS, _READS):
        for function in _functions(type(process)):
            for code in _codes(function.__code__):
                for each in dis.get_instructions(code):
                    if each.opname in operations and each.argval == name:
                        line = each.positions and each.positions.lineno
                        return f"{code.co_filename}:{line} in {function.__name__}"
    return None


def users_code(process: object, method: str) -> object:
    """Return the code of the user that a step calls: a method, or a function."""
    if not isinstance(process, BuiltIn):
        return getattr(process, method, None)
    given = vars(process).values()
    return next((each for each in given if isinstance(each, FunctionType)), None)


def _functions(kind: type) -> Iterator[FunctionType]:
    """Yield the methods that the user wrote, but for ``open``."""
    for cls in kind.__mro__:
        if cls not in Process.__mro__ and not cls.__module__.startswith("riverlock."):
            for function in vars(cls).values():
                if isinstance(function, FunctionType) and function.__name__ != "open":
                    yield function


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)
