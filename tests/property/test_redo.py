"""Redo files give back the change set they were made of."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riverlock.snapshot.format.sealed import checksum
from riverlock.state.copy import redo as redo_module
from riverlock.state.copy.redo import Redo, forget_recent, read_redo, write_redo
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


def test_a_file_of_another_version_is_none(tmp_path: Path) -> None:
    path = tmp_path / "one.redo"
    for body in (
        b"layout" + msgspec.msgpack.encode({"puts": {}}),
        b"redo-2 layout\x80",
    ):
        path.write_bytes(checksum(body).encode() + body)

        assert read_redo(path, "layout") is None


def test_what_is_too_large_for_a_layer_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redo_module, "_MAX_BYTES", 10)
    changes = Changes({b"a": b"1" * 6, b"b": b"2" * 6}, [], [], [])
    path = tmp_path / "one.redo"

    write_redo(path, Redo.of(changes), "layout")

    assert read_redo(path, "layout") is None
    assert Redo.of(changes).changes() == changes
