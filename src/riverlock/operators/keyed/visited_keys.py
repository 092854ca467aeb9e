"""Which keys a task visits in an epoch, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.state.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.operators.base import Work
    from riverlock.operators.keyed.key_timers import Due
    from riverlock.operators.task_input import KeyedInput
    from riverlock.state.layout import Row

__all__ = ["visited_keys"]


def visited_keys(
    work: Work, data: KeyedInput, due: Due
) -> Iterator[tuple[int | None, bytes, tuple[Any, ...], int]]:
    """Yield the keys to visit: position in the input (if any), id, key, group."""
    ids = data.ids
    extra = {i: due[i][0][2] for i in due.keys() - set(ids)} if due else {}
    if work.program.visits_all:
        known, row = {*ids, *extra}, work.layout.rows["key"]
        extra |= {
            i: encode(_stored_key(row, p))
            for i, p in work.reader.scan(b"")
            if i not in known
        }
    if not extra:
        for position, key_id in enumerate(ids):
            yield position, key_id, data.keys[position], data.groups[position]
        return
    places: dict[bytes, int] = {i: p for p, i in enumerate(ids)}
    for key_id in sorted([*ids, *extra]):
        place = places.get(key_id)
        if place is not None:
            yield place, key_id, data.keys[place], data.groups[place]
        else:
            key = work.layout.decode_key(extra[key_id])
            yield None, key_id, key, int.from_bytes(key_id[:2], "big")


def _stored_key(row: Row, payload: bytes) -> tuple[Any, ...]:
    """Return the key that a row carries, to be visited without records."""
    value = row.decode(payload)[row.names.index("key")]
    key: tuple[Any, ...] = msgspec.structs.astuple(value)
    return key
