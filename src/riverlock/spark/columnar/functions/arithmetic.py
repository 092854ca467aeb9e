"""Arithmetic, in the mode that fails and the one that yields null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.columnar import Cases
from riverlock.core.types import INTEGERS
from riverlock.spark.columnar.functions.builder import Builder, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar import Expression
    from riverlock.spark.columnar.compiler import Compiler

__all__ = ["BUILDERS", "is_tried"]

_NUMBERS = (*INTEGERS, "float", "double")


def is_tried(compiler: Compiler, node: Any) -> bool:
    """Tell whether an expression yields null where it fails.

    Raises:
        Refused: It yields something else, as it did before ANSI.
    """
    mode = str(node.evalMode())
    if mode == "LEGACY":
        raise compiler.refused(node, "with spark.sql.ansi.enabled=false")
    return mode == "TRY"


def _check_numbers(compiler: Compiler, node: Any, *operands: Expression) -> None:
    for each in operands:
        if each.type.kind not in _NUMBERS:
            raise compiler.refused(node, f"of {each.type.ddl}")


def _binary(name: str) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        left, right = compiler.children(node)
        _check_numbers(compiler, node, left, right)
        tried = is_tried(compiler, node)
        kind = compiler.type_of(node)
        return compiler.call(name, (left, right), kind, tried=tried, node=node)

    return build


def _division(name: str) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        left, right = compiler.children(node)
        _check_numbers(compiler, node, left, right)
        tried, kind = is_tried(compiler, node), compiler.type_of(node)
        made = compiler.call(name, (right, left), kind, tried=tried, node=node)
        if not (tried and left.can_fail):
            return made
        # What is divided by zero is not evaluated.
        is_zero = compiler.call(
            "equal", (right, compiler.literal(0, right.type)), "boolean"
        )
        null = compiler.literal(None, kind)
        return compiler.made(Cases, kind, ((is_zero, null),), made)

    return build


def _unary(name: str) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        (child,) = compiler.children(node)
        _check_numbers(compiler, node, child)
        if child.type.kind in INTEGERS and not node.failOnError():
            raise compiler.refused(node, "with spark.sql.ansi.enabled=false")
        return compiler.call(name, (child,), child.type, node=node)

    return build


BUILDERS: Mapping[str, Builder] = {
    "Add": _binary("add"),
    "Subtract": _binary("subtract"),
    "Multiply": _binary("multiply"),
    "Divide": _division("divide"),
    "IntegralDivide": _division("div"),
    "Remainder": _division("remainder"),
    "Pmod": _division("pmod"),
    "UnaryMinus": _unary("negative"),
    "Abs": _unary("abs"),
    "BitwiseAnd": plain("bit_and"),
    "BitwiseOr": plain("bit_or"),
    "BitwiseXor": plain("bit_xor"),
    "BitwiseNot": plain("bit_not"),
}
