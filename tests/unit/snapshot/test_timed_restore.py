"""Going back in a flow with event time: windows, timers, watermarks, late rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.unit.snapshot.killing import killed_at
from tests.unit.snapshot.timed_flow import EVERY, TimedFlow, check_output, some_rows

import riverlock as rl
from riverlock.snapshot.verbs.verify import verify

PER_EPOCH = 6
ROWS = some_rows(54, seed=3)


@pytest.fixture
def flow(tmp_path: Path) -> TimedFlow:
    """Runs until no row and no timer is left; epoch 4 is ``v1``."""
    made = TimedFlow(tmp_path / "store", ROWS, tmp_path / "out", ends=True)
    made.run(5, epoch_rows=PER_EPOCH, retention=EVERY)
    made.catalog.pin("v1", epoch=4, now_us=1)
    go_on(made)
    return made


def go_on(flow: TimedFlow) -> None:
    flow.run(epoch_rows=PER_EPOCH, retention=EVERY)


def test_the_flow_itself_is_right(flow: TimedFlow) -> None:
    check_output(flow, PER_EPOCH)
    pending = [flow.catalog.manifest(e).operators for e in flow.catalog.epochs()[1:-1]]
    # Otherwise there would be nothing to come back.
    assert all(s.timers.event_us for found in pending for s in found.values())


def test_state_time_timers_and_positions_of_any_epoch_come_back(
    flow: TimedFlow,
) -> None:
    last = flow.catalog.epochs()[-1]
    truth = {epoch: flow.contents(epoch) for epoch in range(last + 1)}
    fresh = last + 1

    for target in ("v1", last - 1, 0, last, 6):
        plan = rl.stores.restore(f"{flow.store}@{target}")
        went = plan.target.epoch
        if not plan.is_done:
            assert plan.epoch == fresh
            assert flow.contents(fresh) == truth[went]
        # What readers see is what the epochs up to there gave, and no more.
        read = ROWS[: truth[went]["ends"]["rows"]]
        rolled = Counter((k, v) for k, v, _ in flow.written("dice").elements())
        assert rolled == Counter((k, v) for k, v, _ in read)

        flow.parallelism = flow.parallelism % 3 + 1
        go_on(flow)

        check_output(flow, PER_EPOCH)
        # Each epoch has what it had the first time, but for chance and its number.
        again = range(fresh + 1, flow.catalog.epochs()[-1] + 1)
        for new, old in zip(again, range(went + 1, last + 1), strict=True):
            assert flow.contents(new) == truth[old]
        fresh = flow.catalog.epochs()[-1] + 1
    assert [r.problems for r in verify(flow.catalog) if not r.is_whole] == []


@pytest.mark.parametrize("point", ["V2", "V3"])
def test_a_restore_of_time_that_is_killed_is_done_or_not(
    flow: TimedFlow, point: str
) -> None:
    before, wanted = flow.contents(flow.catalog.epochs()[-1]), flow.contents(4)

    assert killed_at(point, lambda: rl.stores.restore(f"{flow.store}@v1"))

    is_decided = point == "V3"
    newest = flow.catalog.epochs()[-1]
    assert flow.contents(newest) == (wanted if is_decided else before)
    if not is_decided:
        rl.stores.restore(f"{flow.store}@v1")
    assert killed_at("R4", lambda: go_on(flow))
    go_on(flow)
    check_output(flow, PER_EPOCH)
