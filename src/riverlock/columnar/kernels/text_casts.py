"""Casts between text and other values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.columnar.arrays import valid, values
from riverlock.columnar.kernels.kernel import Kernel
from riverlock.columnar.texts.moments import day_of, instant_of, local_of
from riverlock.columnar.texts.numbers import double_of, float_of, truth_of, whole_of
from riverlock.columnar.wrong import Fault
from riverlock.core.types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.columnar.expressions import Call

__all__ = ["KERNELS"]

_DAY_US = 86_400_000_000
_YEAR_1_US, _YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000


def _parsed(
    call: Call, array: pa.Array, function: Callable[[str], Any]
) -> pa.Array | Fault:
    """Return what texts mean; which of them mean nothing is a fault."""
    texts = array.to_pylist()
    known: dict[str, Any] = {t: function(t) for t in set(texts) if t is not None}
    found = [known.get(t) for t in texts]
    made = pa.array(found, call.type.to_arrow())
    if made.null_count == array.null_count:
        return made
    is_there, is_made = valid(array), valid(made)
    wrong = np.zeros(len(array), np.bool_) if is_made is None else ~is_made
    if is_there is not None:
        wrong = wrong & is_there
    kind = call.type.ddl

    def detail(place: int) -> str:
        return f"the value {texts[place]!r} cannot be cast to {kind}"

    return Fault(made, wrong, "CAST_INVALID_INPUT", detail)


def _to_number(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    kind = call.type.kind
    if kind == "float":
        return _parsed(call, arguments[0], float_of)
    if kind == "double":
        return _parsed(call, arguments[0], double_of)
    bits = INTEGERS[kind]
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def number(text: str) -> int | None:
        found = whole_of(text)
        return found if found is not None and least <= found <= most else None

    return _parsed(call, arguments[0], number)


def _to_truth(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    return _parsed(call, arguments[0], truth_of)


def _to_date(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    return _parsed(call, arguments[0], day_of)


def _to_moment(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    if call.type.kind == "timestamp_ntz":
        return _parsed(call, arguments[0], local_of)
    texts, now = arguments
    now_us = int(values(now)[0]) if len(now) else 0
    return _parsed(call, texts, lambda text: instant_of(text, "UTC", now_us))


def _plain(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Write whole numbers and truths."""
    return arguments[0].cast(pa.string())


def _unix_text(call: Call, arguments: Sequence[pa.Array]) -> pa.Array | Fault:
    """Write moments of years of four digits, to the second."""
    (array,) = arguments
    moments = values(array)
    seconds = (moments // 1_000_000).astype("datetime64[s]")
    texts = _written(array, np.datetime_as_string(seconds))
    made = pc.replace_substring(texts, "T", " ")
    wrong = (moments < _YEAR_1_US) | (moments >= _YEAR_10000_US)
    is_valid = valid(array)
    wrong = wrong if is_valid is None else wrong & is_valid
    if not wrong.any():
        return made
    return Fault(made, wrong, "DATETIME_OVERFLOW", lambda at: f"{array[at]} is too far")


def _date_text(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    (array,) = arguments
    days = values(array).astype(np.int64).astype("datetime64[D]")
    is_far = values(array) >= _YEAR_10000_US // _DAY_US
    return _written(array, _signed(np.datetime_as_string(days), is_far))


def _moment_text(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Write moments in UTC, without zeros at the end of fractions."""
    (array,) = arguments
    moments = values(array).astype("datetime64[us]")
    texts = np.datetime_as_string(moments)
    found = _written(array, _signed(texts, values(array) >= _YEAR_10000_US))
    found = pc.replace_substring(found, "T", " ")
    return pc.utf8_rtrim(pc.utf8_rtrim(found, "0"), ".")


def _signed(texts: np.ndarray, is_far: np.ndarray) -> np.ndarray:
    """Write years of five digits and more with a sign."""
    return np.where(is_far, np.char.add("+", texts), texts) if is_far.any() else texts


def _written(array: pa.Array, texts: np.ndarray) -> pa.Array:
    is_valid = valid(array)
    is_null = None if is_valid is None else ~is_valid
    return pa.array(texts.astype(object), pa.string(), mask=is_null)


KERNELS = {
    "text_to_number": Kernel(_to_number, fails=True),
    "text_to_truth": Kernel(_to_truth, fails=True),
    "text_to_date": Kernel(_to_date, fails=True),
    "text_to_moment": Kernel(_to_moment, fails=True),
    "to_text": Kernel(_plain),
    "date_to_text": Kernel(_date_text),
    "moment_to_text": Kernel(_moment_text),
    "unix_to_text": Kernel(_unix_text, fails=True),
}
