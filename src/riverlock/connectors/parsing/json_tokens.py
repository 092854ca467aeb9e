"""JSON as Jackson reads it for Spark: names and text in either quotes, NaN, Infinity.

What is strict JSON, C code reads (``json_decoding``); this is for the rest. Numbers
with a fraction or an exponent keep their text, and objects all their fields.
"""

from __future__ import annotations

import re
from typing import Any, Final

from riverlock.columnar.texts.numbers import double_text

__all__ = ["NoJsonError", "Pairs", "Real", "compact", "parsed"]

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MOST_CHARACTERS: Final = 1_000
_SPECIAL: Final = re.compile(r"NaN|Infinity|[+-](?:Infinity|INF)")
_PLAIN: Final = {
    '"': re.compile(r'[^"\\\x00-\x1f]*'),
    "'": re.compile(r"[^'\\\x00-\x1f]*"),
}
_ESCAPES: Final = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_UNICODE: Final = re.compile(r"[0-9a-fA-F]{4}")
_WORDS: Final = {"true": True, "false": False, "null": None}
_WORD: Final = re.compile(r"[\w$]+")
_WRITTEN: Final = {
    **{n: f"\\u{n:04X}" for n in range(32)},
    **{ord(v): f"\\{k}" for k, v in _ESCAPES.items() if k not in "'/"},
}


class NoJsonError(ValueError):
    """A text is not what Spark takes for JSON."""


class Real:
    """A number with a fraction, an exponent, or a name such as NaN."""

    def __init__(self, text: str) -> None:
        """Keep its text."""
        self.text = text


class Items(list[Any]):
    """The elements of an array."""


class Pairs(list[tuple[str, Any]]):
    """The fields of an object, in order; a name may occur twice."""


def parsed(text: str) -> Any:
    """Return the only value of a text.

    Raises:
        NoJsonError: It is none, or there is something else.
    """
    try:
        value, at = _value(text, _skipped(text, 0))
    except (IndexError, RecursionError):
        raise NoJsonError from None
    if _skipped(text, at) != len(text):
        raise NoJsonError
    return value


def _skipped(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _value(text: str, at: int) -> tuple[Any, int]:
    sign = text[at]
    if sign == "{":
        return _object(text, at)
    if sign == "[":
        return _list(text, at)
    if sign in "\"'":
        return _string(text, at)
    number = _NUMBER.match(text, at)
    if number is not None:
        if len(number[0]) > _MOST_CHARACTERS:
            raise NoJsonError
        is_real = number[1] or number[2]
        found = Real(number[0]) if is_real else int(number[0])
        return found, number.end()
    special = _SPECIAL.match(text, at)
    if special is not None:
        return Real(special[0]), special.end()
    word = _WORD.match(text, at)
    if word is None or word[0] not in _WORDS:
        raise NoJsonError
    return _WORDS[word[0]], word.end()


def _object(text: str, at: int) -> tuple[Pairs, int]:
    found = Pairs()
    at = _skipped(text, at + 1)
    while text[at] != "}":
        if found:
            at = _after(",", text, at)
        if text[at] not in "\"'":
            raise NoJsonError
        name, at = _string(text, at)
        at = _after(":", text, _skipped(text, at))
        value, at = _value(text, at)
        found.append((name, value))
        at = _skipped(text, at)
    return found, at + 1


def _list(text: str, at: int) -> tuple[Items, int]:
    found = Items()
    at = _skipped(text, at + 1)
    while text[at] != "]":
        if found:
            at = _after(",", text, at)
        value, at = _value(text, at)
        found.append(value)
        at = _skipped(text, at)
    return found, at + 1


def _after(sign: str, text: str, at: int) -> int:
    if text[at] != sign:
        raise NoJsonError
    return _skipped(text, at + 1)


def _string(text: str, at: int) -> tuple[str, int]:
    quote, parts, at = text[at], list[str](), at + 1
    plain = _PLAIN[quote]
    while True:
        found = plain.match(text, at)
        assert found is not None
        parts.append(found[0])
        at = found.end()
        if text[at] == quote:
            return "".join(parts), at + 1
        if text[at] != "\\":
            raise NoJsonError
        part, at = _escaped(text, at + 1)
        parts.append(part)


def _escaped(text: str, at: int) -> tuple[str, int]:
    sign = text[at]
    if sign != "u":
        if sign not in _ESCAPES:
            raise NoJsonError
        return _ESCAPES[sign], at + 1
    code, at = _unit(text, at + 1)
    if 0xD800 <= code < 0xDC00 and text[at : at + 2] == "\\u":
        low, at = _unit(text, at + 2)
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
    return chr(code), at


def _unit(text: str, at: int) -> tuple[int, int]:
    found = _UNICODE.match(text, at)
    if found is None:
        raise NoJsonError
    return int(found[0], 16), found.end()


def compact(value: Any) -> str:
    """Return a value as Jackson writes it, which is what a column of text gets."""
    match value:
        case str():
            return f'"{value.translate(_WRITTEN)}"'
        case Pairs():
            pairs = (f"{compact(name)}:{compact(each)}" for name, each in value)
            return f"{{{','.join(pairs)}}}"
        case Items():
            return f"[{','.join(map(compact, value))}]"
        case Real():
            return _real_text(value.text)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def _real_text(text: str) -> str:
    found = float(text.replace("INF", "inf"))
    written = double_text(found)
    return written if found - found == 0 else f'"{written}"'
