"""Casts, by the types they lead from and to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.columnar import Moment
from riverlock.core.types import INTEGERS, Type
from riverlock.spark.columnar.functions.arithmetic import is_tried
from riverlock.spark.columnar.functions.times import check_zone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar import Expression
    from riverlock.spark.columnar.compiler import Compiler
    from riverlock.spark.columnar.functions.builder import Builder

__all__ = ["BUILDERS"]

_NUMBERS = frozenset((*INTEGERS, "float", "double"))
_PLAIN = frozenset((*_NUMBERS, "boolean"))
_SECOND_US = 1_000_000
_MOMENTS = ("timestamp", "timestamp_ntz")
_OTHERS = {
    **{("string", n): "text_to_number" for n in _NUMBERS},
    ("string", "boolean"): "text_to_truth",
    ("string", "date"): "text_to_date",
    **{("string", m): "text_to_moment" for m in _MOMENTS},
    **{(n, "string"): "to_text" for n in (*INTEGERS, "boolean")},
    ("date", "string"): "date_to_text",
    **{(m, "string"): "moment_to_text" for m in _MOMENTS},
    **{(m, "date"): "to_date" for m in _MOMENTS},
    **{("date", m): "from_date" for m in _MOMENTS},
    ("timestamp", "timestamp_ntz"): "as_type",
    ("timestamp_ntz", "timestamp"): "as_type",
    ("timestamp", "long"): "from_moment",
}


def _cast(compiler: Compiler, node: Any) -> Expression:
    (child,) = compiler.children(node)
    to = compiler.type_of(node)
    if child.type == to:
        return child
    name = _kernel(child.type.kind, to.kind)
    if name is None:
        raise compiler.refused(node, f"from {child.type.ddl} to {to.ddl}")
    tried = is_tried(compiler, node)
    if "timestamp" in (child.type.kind, to.kind):
        check_zone(compiler, node)
    if name in ("from_moment", "to_near_moment"):
        return compiler.call(name, (child,), to, _SECOND_US, tried=tried, node=node)
    if name == "text_to_moment":
        # A time without a date is one of today.
        now = compiler.made(Moment, Type("timestamp"))
        return compiler.call(name, (child, now), to, tried=tried, node=node)
    return compiler.call(name, (child,), to, tried=tried, node=node)


def _kernel(given: str, to: str) -> str | None:
    if given in _PLAIN and to in _NUMBERS:
        return "to_number"
    if given in _NUMBERS and to == "boolean":
        return "to_truth"
    if given in INTEGERS and to == "timestamp":
        return "to_near_moment"
    return _OTHERS.get((given, to))


BUILDERS: Mapping[str, Builder] = {"Cast": _cast}
