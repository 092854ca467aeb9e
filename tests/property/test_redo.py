"""Redo files give back the change set they were made of."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from riverlock.runtime.redo import Redo, forget_recent, read_redo, write_redo
from riverlock.state.store import Changes

BYTES = st.binary(min_size=1, max_size=20)
PUTS = st.dictionaries(BYTES, BYTES)
TIMERS = st.lists(st.tuples(BYTES, BYTES, st.none() | BYTES))


@given(PUTS, st.sets(BYTES), TIMERS, st.lists(BYTES), st.integers(0))
def test_round_trip(
    puts: dict[bytes, bytes],
    deletes: set[bytes],
    timers: list[tuple[bytes, bytes, bytes | None]],
    expiries: list[bytes],
    flipped: int,
) -> None:
    gone = sorted(deletes - puts.keys())
    changes = Changes(puts, gone, timers, expiries)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.redo"
        write_redo(path, Redo.of(changes), "layout")
        forget_recent()

        found = read_redo(path, "layout")
        other = read_redo(path, "another")
        raw = bytearray(path.read_bytes())
        raw[flipped % len(raw)] ^= 1
        path.write_bytes(raw)
        damaged = read_redo(path, "layout")

    assert found is not None
    assert found.changes() == changes
    assert (other, damaged) == (None, None)
