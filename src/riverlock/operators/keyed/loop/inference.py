"""Which names of a loop hold the same type whatever happens: those need no checking.

Optimistic: every name is thought to keep its type until an assignment says otherwise,
and what was concluded from it is looked at again.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["kept_types"]

_NUMBERS: Final = (int, float)
_ARITHMETIC: Final = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_RESULTS: Final = {"bool": bool, "float": float, "int": int, "len": int, "str": str}


class _Undecided:
    """The type of a name that nothing was assigned to yet."""


def kept_types(
    statements: Sequence[ast.stmt], types: Mapping[str, type | None]
) -> set[str]:
    """Return the names that keep their types.

    Args:
        statements: What may run, any number of times.
        types: What names hold at the start; None: anything.
    """
    known: dict[str, type | None] = {
        name: _Undecided for name, _ in _assignments(statements, {})
    }
    known |= types
    is_settled = False
    while not is_settled:
        is_settled = True
        for name, found in _assignments(statements, known):
            before = known[name]
            if found is _Undecided or found is before:
                continue
            known[name] = found if before is _Undecided else None
            is_settled &= known[name] is before
    return {name for name, kind in types.items() if kind and known[name] is kind}


def _assignments(
    statements: Iterable[ast.stmt], known: Mapping[str, type | None]
) -> Iterator[tuple[str, type | None]]:
    """Yield what is assigned, with its type."""
    for each in statements:
        for node in ast.walk(each):
            match node:
                case ast.Assign(targets, value):
                    kind = _type_of(value, known)
                    for target in targets:
                        is_one = isinstance(target, ast.Name)
                        for name in _names(target):
                            yield name, kind if is_one else None
                case ast.AugAssign(ast.Name(name) as target, operator, value):
                    yield name, _type_of(ast.BinOp(target, operator, value), known)
                case _:
                    pass


def _names(target: ast.expr) -> list[str]:
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def _type_of(node: ast.expr, known: Mapping[str, type | None]) -> type | None:
    """Return the type of an expression, if it has a value at all; None: unknown."""
    match node:
        case ast.Constant(value):
            return type(value)
        case ast.Name(name):
            return known.get(name)  # what is never assigned may be anything
        case ast.JoinedStr():
            return str
        case ast.Compare() | ast.UnaryOp(ast.Not()):
            return bool
        case ast.Call(ast.Name(name), args):
            return _result(name, [_type_of(a, known) for a in args])
        case _:
            return _combined(node, known)


def _combined(node: ast.expr, known: Mapping[str, type | None]) -> type | None:
    """Return the type of an operation."""
    match node:
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _number(_type_of(operand, known))
        case ast.IfExp(_, one, other):
            return _common(_type_of(e, known) for e in (one, other))
        case ast.BoolOp(_, parts):
            return _common(_type_of(e, known) for e in parts)
        case ast.BinOp(left, operator, right):
            sides = _type_of(left, known), _type_of(right, known)
            return _arithmetic(sides[0], operator, sides[1])
        case _:
            return None


def _result(function: str, kinds: list[type | None]) -> type | None:
    if function in ("max", "min") and len(kinds) > 1:
        return _common(kinds)
    if function == "abs":
        return _number(kinds[0]) if len(kinds) == 1 else None
    return _RESULTS.get(function)


def _common(kinds: Iterable[type | None]) -> type | None:
    found = set(kinds) - {_Undecided}
    if not found:
        return _Undecided
    return found.pop() if len(found) == 1 else None


def _number(kind: type | None) -> type | None:
    return kind if kind in (*_NUMBERS, _Undecided) else None


def _arithmetic(
    left: type | None, operator: ast.operator, right: type | None
) -> type | None:
    if _Undecided in (left, right):
        return _Undecided
    if left is str and right is str and isinstance(operator, ast.Add):
        return str
    if left not in _NUMBERS or right not in _NUMBERS:
        return None
    if isinstance(operator, ast.Div):
        return float
    if not isinstance(operator, _ARITHMETIC):
        return None
    return float if float in (left, right) else int
