"""Epochs of random ranges, run again without Spark: the same results, every time.

What Spark does in a replay is tested with it, in ``tests/integration/test_replay.py``.
"""

from __future__ import annotations

import random
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.snapshot.local_flow import LocalFlow, source
from tests.unit.snapshot.small_flow import SmallFlow, Sums
from tests.unit.snapshot.timed_flow import EVERY, TimedFlow, some_rows

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.driver.region_loop import RegionDriver


class Restless(rl.Process):
    """Randomness and timers of processing time, state of each kind, a time to live."""

    output = "k string, total long, roll double"
    total = rl.Value("long", default=0)
    recent = rl.List("long")
    seen = rl.Map("long", "timestamp", ttl="20 seconds")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.total += row.v
        self.recent.append(row.v)
        self.seen[row.v % 3] = ctx.now
        ctx.set_timer(ctx.now + rl.seconds(row.v % 9), processing=True)
        yield row.k, self.total, ctx.random.random()

    def on_timer(self, at: Any, ctx: Any) -> Any:
        if len(self.recent) > 4:
            self.recent.clear()
        yield ctx.key, -len(list(self.seen)), ctx.random.random()


class RestlessFlow(LocalFlow):
    def build(self) -> rl.Flow:
        flow = rl.Flow("restless", key_groups=8)
        rows = flow.read(source("k string, v long, at timestamp"), uid="rows")
        rows.key_by("k").process(Restless(), uid="op").write(
            rl.sinks.files(str(self.out), format="json"), uid="out"
        )
        return flow


def time_passes(clock: ManualClock, driver: RegionDriver) -> None:
    clock.advance(timedelta(seconds=2))


@pytest.mark.parametrize(
    "epochs", [40, pytest.param(1_000, marks=pytest.mark.slow, id="a-thousand")]
)
def test_random_epochs_are_the_same_again(tmp_path: Path, epochs: int) -> None:
    chance = random.Random(epochs)
    kept = 12 if epochs < 1_000 else 100
    flows: list[LocalFlow] = []
    for kind in (RestlessFlow, TimedFlow):
        place = tmp_path / kind.__name__
        made = kind(place / "store", some_rows(3 * kept, seed=5), place / "out")
        made.after = partial(time_passes, made.clock)
        made.run(kept // 2, retention=EVERY)
        made.parallelism = 2  # half of the epochs by one task, half by two
        assert made.run(retention=EVERY) >= kept - 1
        flows.append(made)
    done = 0
    while done < epochs:
        flow = chance.choice(flows)
        last = flow.catalog.epochs()[-1]
        first = chance.randint(0, last)
        until = min(last, first + chance.randint(0, 12), first + epochs - done - 1)

        found = flow.replay(first, until)

        wrong = [e.epoch for e in found.epochs if not e.matches]
        assert wrong == [], f"{type(flow).__name__} {first}..{until}"
        assert all(o.how == "checksums" for e in found.epochs for o in e.outputs)
        done += len(found.epochs)
    assert done == epochs


class InOrder(Sums):
    """Tells in which order a parameter has its keys."""

    output = "k string, order string"
    weights = rl.Param({"b": 1, "a": 2})

    def on_event(self, row: Any, ctx: Any) -> Any:
        yield row.k, ",".join(self.weights)


def test_a_default_has_the_same_order_in_a_replay(tmp_path: Path) -> None:
    rows = [("a", 1), ("b", 2)]
    flow = SmallFlow(tmp_path / "store", rows, tmp_path / "out", process=InOrder)
    flow.run()

    assert flow.replay(0, 0).matches
