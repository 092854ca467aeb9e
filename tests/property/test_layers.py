"""Layers of rows against one plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from riverlock.runtime.layers import UNKNOWN, Layers

IDS = [bytes([n]) for n in range(12)]
MAPS = st.dictionaries(
    st.sampled_from(IDS), st.none() | st.binary(min_size=1, max_size=2), max_size=12
)


@given(st.lists(st.tuples(MAPS, st.booleans()), max_size=14))
def test_newest_layer_that_has_an_id_is_right(steps: list[tuple[dict, bool]]) -> None:  # type: ignore[type-arg]
    layers, plain = Layers(), {}
    for rows, merges in steps:
        layers.push(dict(rows))
        plain.update(rows)
        if merges:
            assert layers.merge() == plain
        known = [plain.get(i, UNKNOWN) for i in IDS]
        assert layers.get_many(IDS) == known
        assert [layers.get(i) for i in IDS] == known
        assert layers.size >= len(plain)
