"""Fields, elements, sizes; rounding and hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.columnar.hashes import can_hash
from riverlock.core.types import INTEGERS, Type
from riverlock.spark.columnar.functions.builder import Builder, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar import Expression
    from riverlock.spark.columnar.compiler import Compiler

__all__ = ["BUILDERS"]

_LONG = Type("long")
_REALS = ("float", "double")


def _field(compiler: Compiler, node: Any) -> Expression:
    child = compiler.of(node.child())
    kind = compiler.type_of(node)
    return compiler.call("field", (child,), kind, int(node.ordinal()), node=node)


def _item(compiler: Compiler, node: Any) -> Expression:
    found = compiler.of(node.child()), compiler.of(node.ordinal())
    kind, is_safe = compiler.type_of(node), not node.failOnError()
    return compiler.call("element", found, kind, False, is_safe, node=node)  # noqa: FBT003


def _element(compiler: Compiler, node: Any) -> Expression:
    array, place = compiler.children(node)
    if array.type.kind != "array" or node.defaultValueOutOfBound().isDefined():
        raise compiler.refused(node, f"of {array.type.ddl}")
    kind, is_safe = compiler.type_of(node), not node.failOnError()
    return compiler.call("element", (array, place), kind, True, is_safe, node=node)  # noqa: FBT003


def _size(compiler: Compiler, node: Any) -> Expression:
    (child,) = compiler.children(node)
    if child.type.kind not in ("array", "map") or node.legacySizeOfNull():
        raise compiler.refused(node, f"of {child.type.ddl}")
    return compiler.call("size", (child,), Type("int"), node=node)


def _struct(compiler: Compiler, node: Any) -> Expression:
    found = compiler.children(node)[1::2]
    return compiler.call("struct", found, compiler.type_of(node), node=node)


def _array(compiler: Compiler, node: Any) -> Expression:
    found, kind = compiler.children(node), compiler.type_of(node)
    if not found:
        return compiler.literal([], kind)
    return compiler.call("array", found, kind, node=node)


def _whole(name: str) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        (child,) = compiler.children(node)
        if child.type.kind not in (*INTEGERS, *_REALS):
            raise compiler.refused(node, f"of {child.type.ddl}")
        return compiler.call(name, (child,), compiler.type_of(node), node=node)

    return build


def _round(way: str) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        child, scale = compiler.of(node.child()), compiler.constant(node.scale())
        kind = compiler.type_of(node)
        if child.type != kind or kind.kind not in (*INTEGERS, "double"):
            raise compiler.refused(node, f"of {child.type.ddl}")
        if scale is None:
            return compiler.literal(None, kind)
        if kind.kind in INTEGERS and not node.ansiEnabled():
            raise compiler.refused(node, "with spark.sql.ansi.enabled=false")
        return compiler.call("round", (child,), kind, int(scale), way, node=node)

    return build


def _hash(compiler: Compiler, node: Any) -> Expression:
    found = compiler.children(node)
    for each in found:
        if not can_hash(each.type):
            raise compiler.refused(node, f"of {each.type.ddl}")
    return compiler.call("xxhash64", found, _LONG, int(node.seed()), node=node)


BUILDERS: Mapping[str, Builder] = {
    "GetStructField": _field,
    "GetArrayItem": _item,
    "ElementAt": _element,
    "Size": _size,
    "CreateNamedStruct": _struct,
    "CreateArray": _array,
    "Floor": _whole("floor"),
    "Ceil": _whole("ceil"),
    "Round": _round("half_up"),
    "BRound": _round("half_even"),
    "Sqrt": plain("sqrt"),
    "XxHash64": _hash,
}
