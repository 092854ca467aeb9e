"""What compiles one kind of expression, and how the plain ones are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.columnar import Expression
    from riverlock.spark.columnar.compiler import Compiler

__all__ = ["Builder", "plain"]

Builder: TypeAlias = "Callable[[Compiler, Any], Expression]"


def plain(name: str) -> Builder:
    """Compile an expression to a call of its children."""

    def build(compiler: Compiler, node: Any) -> Expression:
        found = compiler.children(node)
        return compiler.call(name, found, compiler.type_of(node), node=node)

    return build
