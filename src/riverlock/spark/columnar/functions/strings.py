"""Functions of text, in the order of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.columnar import Literal
from riverlock.core.types import Type
from riverlock.spark.columnar.patterns import (
    NoPatternError,
    like_pattern,
    regex_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar import Expression
    from riverlock.spark.columnar.compiler import Compiler
    from riverlock.spark.columnar.functions.builder import Builder

__all__ = ["BUILDERS"]

_BOOLEAN = Type("boolean")
_MOST = (1 << 31) - 1


def _texts(name: str, *kinds: str) -> Builder:
    """Compile a call whose first argument is of these kinds; text by default."""
    wanted = kinds or ("string",)

    def build(compiler: Compiler, node: Any) -> Expression:
        found = compiler.children(node)
        if found[0].type.kind not in wanted:
            raise compiler.refused(node, f"of {found[0].type.ddl}")
        return compiler.call(name, found, compiler.type_of(node), node=node)

    return build


def _concat(compiler: Compiler, node: Any) -> Expression:
    found = compiler.children(node)
    kind = compiler.type_of(node)
    if kind.kind not in ("string", "binary"):
        raise compiler.refused(node, f"of {kind.ddl}")
    if len(found) == 1:
        return found[0]
    return compiler.call("concat", found, kind, node=node)


def _joined(compiler: Compiler, node: Any) -> Expression:
    found = compiler.children(node)
    for each in found:
        if each.type.kind != "string":
            raise compiler.refused(node, f"of {each.type.ddl}")
    return compiler.call("concat_ws", found, compiler.type_of(node), node=node)


def _trim(name: str) -> Builder:
    def build(compiler: Compiler, node: Any) -> Expression:
        characters: Any = " "
        if node.trimStr().isDefined():
            characters = compiler.constant(node.trimStr().get())
        kind = compiler.type_of(node)
        text = compiler.of(node.srcStr())
        if characters is None:
            return compiler.literal(None, kind)
        return compiler.call(name, (text,), kind, characters, node=node)

    return build


def _substring(compiler: Compiler, node: Any) -> Expression:
    found, kind = compiler.children(node), compiler.type_of(node)
    text, place, length = found
    if kind.kind not in ("string", "binary"):
        raise compiler.refused(node, f"of {kind.ddl}")
    given = [e.value for e in (place, length) if isinstance(e, Literal)]
    if kind.kind == "string" and len(given) == 2 and None not in given:
        first, size = max(given[0] - 1, 0), given[1]
        if given[0] >= 0 and size > 0:
            return compiler.call(
                "substring_from", (text,), kind, first, min(size, _MOST), node=node
            )
    return compiler.call("substring", found, kind, node=node)


def _like(compiler: Compiler, node: Any) -> Expression:
    text, pattern = compiler.of(node.left()), compiler.constant(node.right())
    if pattern is None:
        return compiler.literal(None, _BOOLEAN)
    try:
        found = like_pattern(pattern, str(node.escapeChar()))
    except NoPatternError as error:
        raise compiler.refused(node, str(error)) from None
    return compiler.call("matches", (text,), _BOOLEAN, found, node=node)


def _rlike(compiler: Compiler, node: Any) -> Expression:
    text, pattern = compiler.of(node.left()), compiler.constant(node.right())
    if pattern is None:
        return compiler.literal(None, _BOOLEAN)
    try:
        found = regex_pattern(pattern)
    except NoPatternError as error:
        raise compiler.refused(node, str(error)) from None
    return compiler.call("matches", (text,), _BOOLEAN, found, node=node)


BUILDERS: Mapping[str, Builder] = {
    "Concat": _concat,
    "ConcatWs": _joined,
    "Upper": _texts("upper"),
    "Lower": _texts("lower"),
    "StringTrim": _trim("trim"),
    "StringTrimLeft": _trim("trim_left"),
    "StringTrimRight": _trim("trim_right"),
    "Length": _texts("length", "string", "binary"),
    "OctetLength": _texts("octet_length", "string", "binary"),
    "Substring": _substring,
    "Like": _like,
    "RLike": _rlike,
    "StartsWith": _texts("starts_with"),
    "EndsWith": _texts("ends_with"),
    "Contains": _texts("contains"),
    "StringReplace": _texts("replace"),
    "StringInstr": _texts("instr"),
    "Reverse": _texts("reverse"),
    "StringRepeat": _texts("repeat"),
}
