"""Patterns of LIKE and RLIKE as RE2 takes them, where it finds what Java finds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NoPatternError", "like_pattern", "regex_pattern"]

# What a dot is not, and what Java takes for blank.
_LINE_ENDS: Final = r"\n\r\x{85}\x{2028}\x{2029}"
_BLANK: Final = r"\t\n\x0b\f\r "
_WORD: Final = "A-Za-z0-9_"
_CLASSES: Final = {"d": "0-9", "w": _WORD, "s": _BLANK}
_CONTROL: Final = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
_COUNT: Final = re.compile(r"\{[0-9]{1,3}(?:,[0-9]{0,3})?\}")


class NoPatternError(ValueError):
    """A pattern does not mean the same everywhere."""


def like_pattern(pattern: str, escape: str) -> str:
    """Return the pattern of LIKE.

    Raises:
        NoPatternError: Spark refuses it.
    """
    found, at = [r"(?s)\A"], 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("_", "%", escape):
                message = f"with the pattern {pattern!r}, whose escape escapes nothing"
                raise NoPatternError(message)
            found.append(_quoted(pattern[at]))
        else:
            found.append({"_": ".", "%": ".*"}.get(sign, _quoted(sign)))
        at += 1
    return "".join((*found, r"\z"))


def _quoted(sign: str) -> str:
    if sign.isascii() and not sign.isalnum():
        return f"\\x{ord(sign):02x}"
    return sign


def regex_pattern(pattern: str) -> str:
    """Return a regular expression, to be searched for.

    Raises:
        NoPatternError: It has something that Java and RE2 may understand differently.
    """
    found, at = [], 0
    while at < len(pattern):
        part, at = _part(pattern, at)
        found.append(part)
    made = "".join(found)
    try:
        pc.match_substring_regex(pa.array([""]), made)
    except pa.ArrowInvalid as error:
        raise _refused(pattern, str(error)) from None
    return made


def _part(pattern: str, at: int) -> tuple[str, int]:
    sign, behind = pattern[at], pattern[at + 1 : at + 3]
    if sign in _WITHIN:
        return _WITHIN[sign](pattern, at)
    is_group = sign == "(" and behind[:1] == "?" and behind[1:] != ":"
    if is_group or (sign in "*+?" and behind[:1] == "+"):
        raise _refused(pattern, sign + behind)
    return _SIGNS.get(sign, sign), at + 1


def _end(pattern: str, at: int) -> tuple[str, int]:
    if at + 1 != len(pattern):
        raise _refused(pattern, "$ before its end")
    # Java lets the end of a line follow.
    return rf"(?:\r\n|[{_LINE_ENDS}])?\z", at + 1


def _count(pattern: str, at: int) -> tuple[str, int]:
    found = _COUNT.match(pattern, at)
    if found is None or pattern[found.end() : found.end() + 1] == "+":
        raise _refused(pattern, "{")
    return found[0], found.end()


def _escaped(pattern: str, at: int) -> tuple[str, int]:
    sign = pattern[at : at + 1]
    if sign.lower() in _CLASSES:
        no = "^" if sign.isupper() else ""
        return f"[{no}{_CLASSES[sign.lower()]}]", at + 1
    if sign in _CONTROL:
        return _CONTROL[sign], at + 1
    if sign and sign.isascii() and not sign.isalnum():
        return _quoted(sign), at + 1
    raise _refused(pattern, f"\\{sign}")


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Return a class of characters and ranges, and of nothing more."""
    found = ["["]
    if pattern[at : at + 1] == "^":
        found.append("^")
        at += 1
    first = at
    while at < len(pattern):
        sign = pattern[at]
        if sign == "]":
            if at == first:
                break
            return "".join((*found, "]")), at + 1
        if sign == "[" or pattern[at : at + 2] == "&&":
            break
        if sign == "\\":
            part, at = _escaped(pattern, at + 1)
            if part.startswith("[^"):
                break
            found.append(part.strip("[]") if part.startswith("[") else part)
            continue
        found.append(sign if sign == "-" else _quoted(sign))
        at += 1
    raise _refused(pattern, "[")


_SIGNS: Final = {".": f"[^{_LINE_ENDS}]", "^": r"\A"}
_WITHIN: Final[dict[str, Callable[[str, int], tuple[str, int]]]] = {
    "\\": lambda pattern, at: _escaped(pattern, at + 1),
    "[": lambda pattern, at: _class(pattern, at + 1),
    "{": _count,
    "$": _end,
}


def _refused(pattern: str, what: str) -> NoPatternError:
    return NoPatternError(f"with {what!r} in the pattern {pattern!r}")
