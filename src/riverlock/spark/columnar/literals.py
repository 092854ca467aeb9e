"""Values of Spark's own classes as those that Arrow takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.spark.columnar.refusals import Refused

if TYPE_CHECKING:
    from riverlock.core.types import Type
    from riverlock.spark.columnar.compiler import Compiler

__all__ = ["python_value"]

_PLAIN = frozenset({"boolean", "byte", "short", "int", "long", "float", "double"})
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})


def python_value(compiler: Compiler, value: Any, kind: Type, node: Any) -> Any:
    """Return a constant of Spark's as Arrow takes it; times are whole numbers.

    Raises:
        Refused: It is of a type that has no literals here.
    """
    if value is None:
        return None
    match kind.kind:
        case found if found in _PLAIN or found in _TIMES:
            return value
        case "string":
            return str(value)
        case "binary":
            return bytes(value)
        case "decimal":
            return value.toJavaBigDecimal()
        case "array" if value.numElements() == 0:
            return []
        case _:
            raise Refused(f"a constant of type {kind.ddl}", node)
