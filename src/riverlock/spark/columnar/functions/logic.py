"""Conditions, comparisons and what is chosen by them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from riverlock.columnar import Both, Cases, Either, FirstValue, Literal, Tried
from riverlock.core.types import INTEGERS, Type
from riverlock.spark.columnar.functions.builder import Builder, plain
from riverlock.spark.plan_trees import sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar import Expression
    from riverlock.spark.columnar.compiler import Compiler

__all__ = ["BUILDERS"]

_BOOLEAN = Type("boolean")
_ORDERED = frozenset(
    (
        *(*INTEGERS, "boolean", "float", "double", "string", "binary", "decimal"),
        *("date", "timestamp", "timestamp_ntz"),
    )
)


def _child(compiler: Compiler, node: Any) -> Expression:
    return compiler.of(node.child())


def _lazy(cls: type[Expression]) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        return compiler.made(cls, _BOOLEAN, *compiler.children(node))

    return build


def _compared(name: str, *, is_turned: bool = False) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        found = _ordered(compiler, node)
        if is_turned and any(e.can_fail for e in found):
            # What comes first is evaluated first.
            return _greater(compiler, name, found, node)
        return compiler.call(
            name, found[::-1] if is_turned else found, _BOOLEAN, node=node
        )

    return build


def _greater(
    compiler: Compiler, name: str, found: list[Expression], node: Any
) -> Expression:
    opposite = {"less": "less_or_equal", "less_or_equal": "less"}[name]
    within = compiler.call(opposite, found, _BOOLEAN, node=node)
    return compiler.call("not", (within,), _BOOLEAN)


def _ordered(compiler: Compiler, node: Any) -> list[Expression]:
    found = compiler.children(node)
    for each in found:
        if each.type.kind not in _ORDERED:
            raise compiler.refused(node, f"of {each.type.ddl}")
    return found


def _extreme(name: str) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        found = _ordered(compiler, node)
        return compiler.call(name, found, compiler.type_of(node), node=node)

    return build


def _in(compiler: Compiler, node: Any) -> Expression:
    value, *listed = _ordered(compiler, node)
    plain_ones = [e for e in listed if isinstance(e, Literal)]
    if len(plain_ones) == len(listed):
        return _in_constants(compiler, value, [e.value for e in plain_ones], node)
    found: Expression | None = None
    for each in listed:
        same = compiler.call("equal", (value, each), _BOOLEAN)
        found = same if found is None else compiler.made(Either, _BOOLEAN, found, same)
    assert found is not None
    return found


def _in_constants(
    compiler: Compiler, value: Expression, listed: list[Any], node: Any
) -> Expression:
    kept = [v for v in listed if v is not None]
    if value.type.kind in ("float", "double"):
        kept = [math.nan if v != v else v + 0.0 for v in kept]
    options = (tuple(dict.fromkeys(kept)), len(kept) < len(listed))
    return compiler.call("in", (value,), _BOOLEAN, *options, node=node)


def _if(compiler: Compiler, node: Any) -> Expression:
    condition, value, otherwise = compiler.children(node)
    return compiler.made(
        Cases, compiler.type_of(node), ((condition, value),), otherwise
    )


def _case_when(compiler: Compiler, node: Any) -> Expression:
    kind = compiler.type_of(node)
    branches = tuple(
        (compiler.of(branch._1()), compiler.of(branch._2()))
        for branch in sequence(node.branches())
    )
    otherwise = compiler.literal(None, kind)
    if node.elseValue().isDefined():
        otherwise = compiler.of(node.elseValue().get())
    return compiler.made(Cases, kind, branches, otherwise)


def _coalesce(compiler: Compiler, node: Any) -> Expression:
    found = compiler.children(node)
    if len(found) == 1:
        return found[0]
    return compiler.made(FirstValue, compiler.type_of(node), tuple(found))


def _nan_replaced(compiler: Compiler, node: Any) -> Expression:
    left, right = compiler.children(node)
    is_nan = compiler.call("is_nan", (left,), _BOOLEAN)
    return compiler.made(Cases, left.type, ((is_nan, right),), left)


def _tried(compiler: Compiler, node: Any) -> Expression:
    child = _child(compiler, node)
    return compiler.made(Tried, child.type, child)


def _some_not_null(compiler: Compiler, node: Any) -> Expression:
    found = compiler.children(node)
    return compiler.call("at_least", found, _BOOLEAN, node.n(), node=node)


def _with(compiler: Compiler, node: Any) -> Expression:
    for each in sequence(node.defs()):
        compiler.define(each.id().id(), each.child())
    return compiler.of(node.child())


def _common(compiler: Compiler, node: Any) -> Expression:
    return compiler.defined(node.id().id())


BUILDERS: Mapping[str, Builder] = {
    "Alias": _child,
    "KnownNotNull": _child,
    "KnownNullable": _child,
    "And": _lazy(Both),
    "Or": _lazy(Either),
    "Not": plain("not"),
    "EqualTo": _compared("equal"),
    "EqualNullSafe": _compared("null_safe_equal"),
    "LessThan": _compared("less"),
    "LessThanOrEqual": _compared("less_or_equal"),
    "GreaterThan": _compared("less", is_turned=True),
    "GreaterThanOrEqual": _compared("less_or_equal", is_turned=True),
    "In": _in,
    "If": _if,
    "CaseWhen": _case_when,
    "Coalesce": _coalesce,
    "NaNvl": _nan_replaced,
    "IsNull": plain("is_null"),
    "IsNotNull": plain("is_not_null"),
    "IsNaN": plain("is_nan"),
    "Least": _extreme("least"),
    "Greatest": _extreme("greatest"),
    "AtLeastNNonNulls": _some_not_null,
    "TryEval": _tried,
    "With": _with,
    "CommonExpressionRef": _common,
}
