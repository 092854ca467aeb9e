"""Casts, by the types they lead from and to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.types import INTEGERS
from riverlock.spark.columnar.functions.arithmetic import is_tried

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar import Expression
    from riverlock.spark.columnar.compiler import Compiler
    from riverlock.spark.columnar.functions.builder import Builder

__all__ = ["BUILDERS"]

_NUMBERS = frozenset((*INTEGERS, "float", "double"))
_PLAIN = frozenset((*_NUMBERS, "boolean"))


def _cast(compiler: Compiler, node: Any) -> Expression:
    (child,) = compiler.children(node)
    to = compiler.type_of(node)
    if child.type == to:
        return child
    name = _kernel(child.type.kind, to.kind)
    if name is None:
        raise compiler.refused(node, f"from {child.type.ddl} to {to.ddl}")
    tried = is_tried(compiler, node)
    return compiler.call(name, (child,), to, tried=tried, node=node)


def _kernel(given: str, to: str) -> str | None:
    if given in _PLAIN and to in _NUMBERS:
        return "to_number"
    if given in _NUMBERS and to == "boolean":
        return "to_truth"
    return None


BUILDERS: Mapping[str, Builder] = {"Cast": _cast}
