"""Functions of text: UTF-8, compared and counted by code points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.columnar.kernels.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from riverlock.columnar.expressions import Call

__all__ = ["KERNELS"]

_MOST = (1 << 31) - 1


def _concat(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    nothing = pa.scalar("" if pa.types.is_string(arguments[0].type) else b"")
    return pc.binary_join_element_wise(*arguments, nothing.cast(arguments[0].type))


def _of_each(call: Call, array: pa.Array, function: Callable[[Any], Any]) -> pa.Array:
    """Return what a function makes of each value; null stays null."""
    made = [None if v is None else function(v) for v in array.to_pylist()]
    return pa.array(made, call.type.to_arrow())


def _is_ascii(array: pa.Array) -> bool:
    return bool(pc.all(pc.string_is_ascii(array)).as_py() in (True, None))


def _upper(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    (array,) = arguments
    if _is_ascii(array):
        return pc.ascii_upper(array)
    return _of_each(call, array, str.upper)


def _lower(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    (array,) = arguments
    if _is_ascii(array):
        return pc.ascii_lower(array)
    return _of_each(call, array, str.lower)


def _trimmed(trim: Any, trim_left: Any, trim_right: Any) -> dict[str, Kernel]:
    def kernel(function: Any) -> Kernel:
        def apply(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
            return function(arguments[0], characters=call.options[0])

        return Kernel(apply)

    return {
        "trim": kernel(trim),
        "trim_left": kernel(trim_left),
        "trim_right": kernel(trim_right),
    }


def _length(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    (array,) = arguments
    is_text = pa.types.is_string(array.type)
    found = pc.utf8_length(array) if is_text else pc.binary_length(array)
    return found.cast(call.type.to_arrow())


def _octets(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    (array,) = arguments
    return pc.binary_length(array).cast(call.type.to_arrow())


def _substring(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    texts, places, lengths = arguments
    made: list[Any] = [
        None if None in row else _part(*row)
        for row in zip(
            texts.to_pylist(), places.to_pylist(), lengths.to_pylist(), strict=True
        )
    ]
    return pa.array(made, call.type.to_arrow())


def _part(value: Any, place: int, length: int) -> Any:
    """Return a part; places count from 1, or from the end if they are negative."""
    first = place - 1 if place > 0 else (len(value) + place if place < 0 else 0)
    last = max(-_MOST - 1, min(first + length, _MOST))
    return value[max(first, 0) : max(last, 0)] if last > first else value[:0]


def _constant_substring(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Do the same for a place from the beginning."""
    first, length = call.options
    last = min(first + length, _MOST)
    return pc.utf8_slice_codeunits(arguments[0], first, last)


def _matches(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return pc.match_substring_regex(arguments[0], call.options[0])


def _starts(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return _compared(arguments, str.startswith)


def _ends(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return _compared(arguments, str.endswith)


def _contains(_: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return _compared(arguments, str.__contains__)


def _compared(
    arguments: Sequence[pa.Array], function: Callable[[str, str], bool]
) -> pa.Array:
    pairs = zip(*(a.to_pylist() for a in arguments), strict=True)
    made = [None if a is None or b is None else function(a, b) for a, b in pairs]
    return pa.array(made, pa.bool_())


def _replaced(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    rows = zip(*(a.to_pylist() for a in arguments), strict=True)
    made = [
        None if None in row else (row[0].replace(row[1], row[2]) if row[1] else row[0])
        for row in rows
    ]
    return pa.array(made, call.type.to_arrow())


def _reversed(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    return _of_each(call, arguments[0], lambda v: v[::-1])


def _repeated(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    rows = zip(*(a.to_pylist() for a in arguments), strict=True)
    made = [None if None in row else row[0] * max(0, row[1]) for row in rows]
    return pa.array(made, call.type.to_arrow())


def _place_in(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    rows = zip(*(a.to_pylist() for a in arguments), strict=True)
    made = [None if None in row else row[0].find(row[1]) + 1 for row in rows]
    return pa.array(made, call.type.to_arrow())


def _joined(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Join what is not null; null if the separator is."""
    separators, *parts = (a.to_pylist() for a in arguments)
    made = [
        None if by is None else by.join(p for p in row if p is not None)
        for by, *row in zip(separators, *parts, strict=True)
    ]
    return pa.array(made, call.type.to_arrow())


KERNELS = {
    "concat": Kernel(_concat),
    "upper": Kernel(_upper),
    "lower": Kernel(_lower),
    **_trimmed(pc.utf8_trim, pc.utf8_ltrim, pc.utf8_rtrim),
    "length": Kernel(_length),
    "octet_length": Kernel(_octets),
    "substring": Kernel(_substring),
    "substring_from": Kernel(_constant_substring),
    "matches": Kernel(_matches),
    "starts_with": Kernel(_starts),
    "ends_with": Kernel(_ends),
    "contains": Kernel(_contains),
    "replace": Kernel(_replaced),
    "reverse": Kernel(_reversed),
    "repeat": Kernel(_repeated),
    "instr": Kernel(_place_in),
    "concat_ws": Kernel(_joined, of_values=False),
}
