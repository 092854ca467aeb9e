"""Parameters change at one epoch, whatever dies, is redone, or is gone back to."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.snapshot.killing import killed_at
from tests.unit.snapshot.small_flow import Row, SmallFlow, Sums

import riverlock as rl
from riverlock.snapshot.format.records import Change
from riverlock.snapshot.format.requests import add_request

ROWS: list[Row] = [(f"k{n * 7 % 5}", n % 11 + 1) for n in range(40)]
EPOCH_ROWS = 3


class Scaled(Sums):
    factor = rl.Param(1, doc="what each number is multiplied by")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.total += row.v * self.factor
        yield row.k, self.total


@dataclass(frozen=True)
class After:
    """What there is after an epoch, computed by hand."""

    at: int = 0
    factor: int | None = None  # that was set
    totals: dict[str, int] = field(default_factory=dict)

    def next(self, asked: list[int | None]) -> After:
        factor = asked[-1] if asked else self.factor
        totals = dict(self.totals)
        for key, number in ROWS[self.at : self.at + EPOCH_ROWS]:
            totals[key] = totals.get(key, 0) + number * (factor or 1)
        at = min(self.at + EPOCH_ROWS, len(ROWS))
        return After(at=at, factor=factor, totals=totals)


Step = tuple[str, Any]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(2, 9) | st.none()),
        st.tuples(st.just("run"), st.integers(1, 4)),
        st.tuples(st.just("kill"), st.sampled_from(["P1", "P2", "P6", "P8", "P10"])),
        st.tuples(st.just("restore"), st.integers(0, 3)),
    ),
    min_size=3,
    max_size=9,
)


@settings(max_examples=10, deadline=None)
@given(steps)
@example(
    [
        ("run", 1),
        *(
            each
            for p in ("P2", "P6", "P8")
            for each in (("set", ord(p[1])), ("kill", p))
        ),
        ("restore", 2),
        ("run", 1),  # what was undone is not asked for again
        ("set", None),
        ("restore", 1),
        ("set", 3),
        ("run", 20),  # to the end of the rows
        ("set", 4),
        ("run", 1),  # an epoch without rows
    ]
)
def test_values_belong_to_their_epoch(script: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flow = SmallFlow(Path(folder, "s"), ROWS, Path(folder, "o"), process=Scaled)
        flow.run(1, epoch_rows=EPOCH_ROWS)
        model, asked = [After().next([])], list[int | None]()
        for what, how in script:
            if what == "set":
                ask(flow, how)
                asked.append(how)
                continue
            if what == "restore":
                target = max(0, len(model) - 1 - how)
                rl.stores.restore(f"{flow.store}@{target}", keep_output=True)
                # None if the newest epoch is already one that went back to the target.
                if newest_epoch(flow) == len(model):
                    model.append(model[target])
            elif what == "run":
                flow.run(how, epoch_rows=EPOCH_ROWS)
            else:
                killed_at(how, lambda: flow.run(2, epoch_rows=EPOCH_ROWS))
            decided = 1 + newest_epoch(flow)
            while len(model) < decided:
                model.append(model[-1].next(asked))
                asked.clear()
            check(flow, model)


def ask(flow: SmallFlow, factor: int | None) -> None:
    change = Change(defaults={"op": ("factor",)})
    if factor is not None:
        change = Change(values={"op": {"factor": factor}})
    add_request(flow.catalog, change, now_us=1)


def newest_epoch(flow: SmallFlow) -> int:
    newest = flow.catalog.newest()
    assert newest is not None
    return newest.epoch


def check(flow: SmallFlow, model: list[After]) -> None:
    for epoch in flow.catalog.epochs():
        found = flow.catalog.manifest(epoch).operators["op"].parameters["factor"]
        assert (found.value, found.default) == (model[epoch].factor, 1)
    state = {key: total for key, (total, _) in flow.state().items()}
    assert state == model[-1].totals
