"""Mode complete: the whole table of results, in each epoch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import from_micros
from riverlock.flow.inside import program_of
from riverlock.operators.aggregates.whole_table import WholeTable
from riverlock.testing import harness

COLUMNS = "k string, window_start timestamp, n long"
ROWS = st.tuples(
    st.sampled_from("abc"), st.integers(0, 2).map(from_micros), st.integers(0, 9)
)


@settings(max_examples=25)
@given(st.lists(st.lists(ROWS, max_size=4), max_size=6))
def test_each_epoch_gives_the_newest_row_of_every_key(epochs: list[Any]) -> None:
    h = harness(WholeTable(), key=["k", "window_start"], input=COLUMNS, visits_all=True)
    table: dict[Any, Any] = {}
    for rows in epochs:
        table |= {row[:2]: row for row in rows}
        with h.epoch():
            h.send(*rows)

        assert sorted(h.output) == sorted(table.values())
        h.clear_output()


def stream(flow: rl.Flow) -> rl.Stream:
    columns = "k string, v long, at timestamp"
    source = rl.sources.files("in", format="json", schema=columns)
    return flow.read(source).event_time("at")


def test_modes_that_cannot_be_are_refused() -> None:
    flow = rl.Flow("modes")
    keyed = stream(flow).key_by("k")
    totals, memory = keyed.agg(n="count(*)"), rl.sinks.memory()
    with pytest.raises(InvalidFlowError, match="which adds to them"):
        totals.write(rl.sinks.files("out", format="json"), mode="complete")
    with pytest.raises(InvalidFlowError, match="append"):
        totals.write(memory, mode="append")
    for other in (keyed.reduce(lambda old, _: old), stream(flow)):
        for mode in ("append", "complete", "update"):
            with pytest.raises(InvalidFlowError, match="the output of agg"):
                other.write(memory, mode=mode)
    with pytest.raises(InvalidFlowError, match="append, update or complete"):
        totals.write(memory, mode="upsert")
    totals.write(memory, mode="update", uid="updates")
    assert program_of(flow).writes[-1].input.input is program_of(flow).keyed[0]  # type: ignore[union-attr]
