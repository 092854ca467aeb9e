"""Layers of rows against one plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from riverlock.state.copy.layers import Layer, Layers

IDS = [bytes([n]) for n in range(12)] + [b"", b"long" * 30]
# An empty row is a deleted one.
MAPS = st.dictionaries(st.sampled_from(IDS), st.binary(max_size=2), max_size=14)
ASKED = st.lists(st.sampled_from(IDS), unique=True)


@given(st.lists(st.tuples(MAPS, ASKED, st.booleans()), max_size=20))
def test_newest_layer_that_has_an_id_is_right(
    steps: list[tuple[dict[bytes, bytes], list[bytes], bool]],
) -> None:
    layers, plain = Layers(), dict[bytes, bytes]()
    for rows, asked, merges in steps:
        layers.push(Layer.of(list(rows), list(rows.values())))
        plain.update(rows)
        if merges:
            assert layers.as_dict() == plain
        assert layers.get_many(asked) == [plain.get(i) for i in asked]
        assert [layers.get(i) for i in asked] == [plain.get(i) for i in asked]
        assert layers.size >= len(plain)
