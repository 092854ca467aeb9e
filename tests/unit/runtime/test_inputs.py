"""Order of keys: that of their ids as bytes, however it is computed."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from riverlock.runtime.inputs import _sorted_places

short = st.binary(min_size=2, max_size=8)


@given(st.lists(short | st.binary(min_size=2, max_size=12), min_size=1, unique=True))
@example([b"ab\0", b"ab"])
@example([b"\xff" * 8, b"\x7f" * 8, b"\x80" * 8])
def test_places_are_those_of_sorted_bytes(ids: list[bytes]) -> None:
    places = _sorted_places(ids).tolist()

    assert [ids[p] for p in places] == sorted(ids)
