"""The loop over keys and records, written out for the state of one operator.

Around a user's ``on_event`` of 0.35 µs, every call, loop and look-up of ours counts. A
key with four records took 3.2 µs in a loop that goes through the declared values by
name, and 1.8 with names and types written out. So the text is made once per operator,
as ``dataclasses`` does for its methods, and compiled.

The text is always that of this module. Only names of declared values, which are
attributes of a class, are filled in.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from riverlock.state.columns.python_rows import Records
    from riverlock.state.layout import StateLayout

__all__ = ["Turns", "compiled"]

_EVENTS = """
record = None
try:
    for record in {records}:
        {set_time}
        rows = on_event(record, ctx)
        if rows is not None:
            emit(rows)
        {settle}
except Exception as error:
    raise failed(error, record) from error
"""

_MODULE = """
def events(begin, end, records, times):
    ctx.time_us = None
    clock = iter(times[begin:end] if times else ())
    {events}

def visits(turns, payloads, bounds, records, times):
    left = []
    stream, clock = iter(records), iter(times or ())
    begin = 0
    for at, payload, end in zip(turns, payloads, bounds, strict=True):
        visit.at = at
        ctx.key = at[2]{only}
        ctx.generator = ctx.time_us = None
        {place}
        {visit_events}
        begin = end
        if timers:
            fire()
        {finish}
        {settle_for_good}
        left.append(({values}))
        if touched:
            flush()
        if timers:
            record_timers(at)
    return left
"""


class Turns(NamedTuple):
    """The two compiled functions."""

    # Run the records of one key: begin, end, records, times.
    events: Callable[[int, int, Records, list[int | None] | None], None]
    # Run those of all keys; returns the values that each key ended with.
    visits: Callable[..., list[tuple[Any, ...]]]


def compiled(  # noqa: PLR0913 - what the loop depends on
    layout: StateLayout,
    settled: list[tuple[str, type | None]],
    *,
    has_times: bool,
    has_result: bool,
    lends: bool,
    is_exact: bool,
    helpers: dict[str, Any],
) -> Turns:
    """Return the loop for an operator.

    Args:
        layout: Its state.
        settled: The values to settle after each record, with the types that need no
            settling: those of the key, and those of its group. Others, which may have
            been changed in place, are in ``lent`` if a record has asked for them.
        has_times: Whether records have event times.
        has_result: Whether each key's turn ends with a row of the operator.
        lends: Whether there is state that may be changed in place.
        is_exact: Whether values of the right type are looked at after each record, too:
            a whole number may have more than 64 bits. If not so, that is found later.
        helpers: What the text calls by name.
    """
    row = layout.rows["key"]
    code = _code(
        tuple(row.names),
        tuple((name, kind and kind.__name__) for name, kind in settled),
        is_single=len(layout.keys.fields) == 1,
        has_times=has_times,
        has_result=has_result,
        lends=lends,
        is_exact=is_exact,
        has_objects=bool(row.objects),
        has_copies=bool(row.objects or row.copied),
    )
    space = {**helpers, "decode": row.decode}
    exec(code, space)  # noqa: S102 - our own text: see above
    return Turns(space["events"], space["visits"])


@lru_cache(maxsize=128)
def _code(  # noqa: PLR0913 - what the text depends on
    names: tuple[str, ...],
    settled: tuple[tuple[str, str | None], ...],
    *,
    is_single: bool,
    has_times: bool,
    has_result: bool,
    lends: bool,
    is_exact: bool,
    has_objects: bool,
    has_copies: bool,
) -> CodeType:
    details = {
        "set_time": "ctx.time_us = next(clock)" if has_times else "",
        "settle": _settle(settled, lends=lends, is_exact=is_exact),
    }
    of_key = _EVENTS.format(records="records.between(begin, end)", **details)
    in_turn = _EVENTS.format(records="islice(stream, end - begin)", **details)
    text = _MODULE.format(
        events=_indented(of_key, 4),
        visit_events=_indented(in_turn, 8),
        only="[0]" if is_single else "",
        place=_indented(_place(names, has_objects=has_objects), 8),
        finish="finish()" if has_result else "",
        settle_for_good="settle_for_good()" if has_copies else "",
        values="".join(f"get({n!r}), " for n in names),
    )
    return compile(text, "<turns>", "exec")


# What values of a type can be that are not stored: see ``Codec.is_normal``.
_ODD = {
    "int": " or not -0x8000000000000000 <= value < 0x8000000000000000",
    "str": " or not value.isascii()",
}


def _settle(
    settled: tuple[tuple[str, str | None], ...], *, lends: bool, is_exact: bool
) -> str:
    """Settle what a record assigned, unless it all has its declared type already."""
    if not settled and not lends:
        return ""
    if any(kind is None for _, kind in settled):
        return "settle()"
    # An unset value is settled too: the default of ``get`` has the right type.
    is_not = [
        f"type(value := get({n!r}, {k}_)) is not {k}{_ODD.get(k or '', '')}"
        if is_exact
        else f"type(get({n!r}, {k}_)) is not {k}"
        for n, k in settled
    ]
    return f"if {' or '.join([*is_not, *(['lent'] if lends else [])])}: settle()"


def _place(names: tuple[str, ...], *, has_objects: bool) -> str:
    if not names or has_objects:
        return "place(payload)"
    values = [f"v{n}" for n in range(len(names))]
    some_unset = " or ".join(f"{v} is None" for v in values)
    assign = "; ".join(
        f"fields[{n!r}] = {v}" for n, v in zip(names, values, strict=True)
    )
    return f"""
if payload is None:
    place(None)
else:
    {", ".join(values)}, = decode(payload)
    if {some_unset}:
        place(payload)
    else:
        {assign}
"""


def _indented(text: str, width: int) -> str:
    return text.strip().replace("\n", "\n" + " " * width)
