"""Values of a program as text that is the same in every process.

Code is identified by what it names, compares and computes, not by its bytes, which
depend on how the interpreter was built.
"""

from __future__ import annotations

import copyreg
import dis
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RECIPE", "digest_of", "name_of", "text_of"]

# Texts of one recipe can be compared. The number is that of this module: raise it with
# every change of what it writes. Compilers of other Pythons may name other steps.
RECIPE = f"1/{sys.version_info.major}.{sys.version_info.minor}"

_PLAIN = (str, int, float, type(None), Decimal, date, time, timedelta)
# Spark numbers the columns of a plan anew each time.
_NUMBERS = re.compile(r"#\d+L?")
_OPERATORS = re.compile(r"[^-<>=!+*/%&|^@~]|bool")
_DEEPEST = 50
_BRANCHES = re.compile(r"IF_(?:NOT_)?(?:NONE|TRUE|FALSE)")


def digest_of(parts: Iterable[str]) -> str:
    """Return a short text that distinguishes texts."""
    return _hash("\n".join(parts).encode())


def name_of(thing: Any) -> str:
    """Return a name without the module: the same file may be loaded under several."""
    return str(thing.__qualname__).rpartition("<locals>.")[2]


def text_of(value: Any) -> str:
    """Return a value of user code as text: settings, functions, Spark columns."""
    return _Writer().text(value)


class _Writer:
    """Writes a value and what it holds; what was written before is only named.

    So that values may hold themselves and each other.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, Any]] = {}
        self._depth = 0

    def text(self, value: Any) -> str:
        plain = _plain(value)
        if plain is not None:
            return plain
        if isinstance(value, tuple):
            return _listed(map(self.text, value))
        if id(value) in self._known:
            return self._known[id(value)][0]
        # With the value itself, so that no other is given its id.
        self._known[id(value)] = f"#{len(self._known)}", value
        if self._depth == _DEEPEST:
            return name_of(type(value))
        self._depth += 1
        try:
            return self._held(value)
        finally:
            self._depth -= 1

    def _held(self, value: Any) -> str:
        text = self.text
        match value:
            case Mapping():
                return _listed(f"{text(k)}: {text(v)}" for k, v in value.items())
            case set() | frozenset():
                return _listed(sorted(map(text, value)))
            case list():
                return _listed(map(text, value))
            case MethodType():
                return f"{text(value.__self__)}.{value.__name__}"
            case partial():
                return text((value.func, value.args, value.keywords))
            case FunctionType():
                return text(_function(value))
            case _ if is_dataclass(value):
                held = [getattr(value, f.name) for f in fields(value)]
                return text((type(value), *held))
            case _:
                return text(_object(value))


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _plain(value: Any) -> str | None:
    """Return a value that has no parts as text; None if it may have some."""
    match value:
        case Enum():
            return f"{name_of(type(value))}.{value.name or value.value}"
        case _ if isinstance(value, _PLAIN):
            return repr(value)
        case bytes() | bytearray():
            return _hash(value)
        case PurePath():
            return repr(str(value))
        case type():
            return name_of(value)
        case ModuleType():
            return value.__name__
        case _ if type(value).__module__.startswith(("pyspark.", "py4j.")):
            return _NUMBERS.sub("", str(value))
        case _:
            return None


def _function(function: FunctionType) -> tuple[Any, ...]:
    cells = [_content(cell) for cell in function.__closure__ or ()]
    defaults = function.__defaults__, function.__kwdefaults__
    return name_of(function), _code(function.__code__), *cells, *defaults


def _object(value: Any) -> Any:
    """Return what an object would be rebuilt from, if it were sent to a worker."""
    name = name_of(type(value))
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        made: Any = value.__reduce_ex__(2) if reduce is None else reduce(value)
        if isinstance(made, str):
            return made
        maker, *parts = made
        held = [tuple(p) if isinstance(p, Iterator) else p for p in parts]
    except Exception:  # noqa: BLE001 - what its class says may run any code
        return name
    return name, name_of(maker), *held


def _code(code: CodeType) -> tuple[Any, ...]:
    inner = [_code(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.co_varnames, code.co_names, tuple(inner), _operations(code)


def _operations(code: CodeType) -> tuple[Any, ...]:
    """Return comparisons, arithmetic and branches in order: ``<`` is not ``>``."""
    found: list[Any] = []
    for step in dis.get_instructions(code):
        if step.opname in ("COMPARE_OP", "BINARY_OP"):
            found.append(_OPERATORS.sub("", step.argrepr))
        elif step.opname in ("IS_OP", "CONTAINS_OP", "LOAD_SMALL_INT"):
            found.append(step.arg)
        elif step.opname in ("UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT"):
            found.append(step.opname)
        elif branch := _BRANCHES.search(step.opname):
            found.append(branch[0])
    return tuple(found)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _hash(data: bytes | bytearray) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
