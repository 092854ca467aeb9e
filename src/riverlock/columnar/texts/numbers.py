"""Numbers and truths in text, as Spark's casts read and write them."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

import numpy as np

from riverlock.columnar.texts.moments import trimmed

__all__ = ["double_of", "double_text", "float_of", "single_of", "truth_of", "whole_of"]

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_REAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_HEX: Final = re.compile(
    r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?"
)
_TRUE: Final = frozenset(("t", "true", "y", "yes", "1"))
_FALSE: Final = frozenset(("f", "false", "n", "no", "0"))
# What Java's own parser takes for blank.
_JAVA_BLANK: Final = "".join(map(chr, range(33)))
_SPECIAL: Final = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), math.inf),
    **dict.fromkeys(("-inf", "-infinity"), -math.inf),
    "nan": math.nan,
}
# Java writes numbers from here to there without an exponent.
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7


def whole_of(text: str) -> int | None:
    """Return a whole number; None: it is none."""
    given = trimmed(text)
    return int(given) if _WHOLE.fullmatch(given) else None


def truth_of(text: str) -> bool | None:
    """Return a truth; None: it is none."""
    given = trimmed(text).lower()
    if given in _TRUE:
        return True
    return False if given in _FALSE else None


def double_of(text: str) -> float | None:
    """Return a number; None: it is none."""
    given = text.strip(_JAVA_BLANK)
    if _REAL.fullmatch(given):
        return float(given.rstrip("dDfF"))
    if _HEX.fullmatch(given):
        mantissa, _, power = given.rpartition("p" if "p" in given else "P")
        return float.fromhex(f"{mantissa}p{power.rstrip('dDfF')}")
    if given in ("NaN", "+NaN", "-NaN"):
        return math.nan
    return _SPECIAL.get(text.strip(_JAVA_BLANK).lower())


def float_of(text: str) -> float | None:
    """Return a number of 32 bits; None: it is none."""
    given = text.strip(_JAVA_BLANK)
    if _REAL.fullmatch(given):
        return single_of(given.rstrip("dDfF"))
    return double_of(text)


def single_of(text: str) -> float:
    """Return the number of 32 bits that is nearest to a decimal number.

    Not by way of 64 bits: to round twice is not to round once.
    """
    with np.errstate(over="ignore"):
        found = np.float32(float(text))
    if not np.isfinite(found):
        return float(found)
    exact, best = Fraction(text), found
    for near in (
        np.nextafter(found, np.float32(-np.inf)),
        np.nextafter(found, np.float32(np.inf)),
    ):
        if not np.isfinite(near):
            continue
        here, there = (
            abs(Fraction(float(best)) - exact),
            abs(Fraction(float(near)) - exact),
        )
        is_even = int(np.float32(near).view(np.int32)) % 2 == 0
        if there < here or (there == here and is_even):
            best = near
    return float(best)


def double_text(value: float, shortest: str | None = None) -> str:
    """Return a number as Java writes it.

    Args:
        value: The number.
        shortest: Its shortest digits, if they are not those of a double.
    """
    if value != value:
        return "NaN"
    if value in (math.inf, -math.inf):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    size = abs(value)
    if size == 0:
        return f"{sign}0.0"
    text = (repr(value) if shortest is None else shortest).lstrip("-")
    mantissa, _, power = text.partition("e")
    whole, _, part = mantissa.partition(".")
    exponent = int(power or 0)
    digits = (whole + part).lstrip("0")
    point = len(whole) + exponent - (len(whole + part) - len(digits))
    digits = digits.rstrip("0") or "0"
    if _PLAIN_FROM <= size < _PLAIN_TO:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        padded = digits.ljust(point, "0")
        return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
