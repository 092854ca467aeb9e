from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.snapshot.small_flow import Row, SmallFlow

import riverlock as rl
from riverlock.core.clock import ManualClock

START = 1_767_225_600_000_000
MINUTE, HOUR = 60_000_000, 3_600_000_000
TEN_YEARS = 87_600 * HOUR


class Minutes(rl.Process):
    output = "k string, n long"
    n = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: Any) -> None:
        self.n += 1
        ctx.set_timer(ctx.now + rl.minutes(1), processing=True)

    def on_timer(self, at: Any, ctx: Any) -> Any:
        yield ctx.key, self.n


def test_a_clock_that_was_ten_years_ahead_for_an_epoch_is_followed_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, rows = ManualClock(START), list[Row]()
    fired = []
    times = (START, START + TEN_YEARS, *(START + n * HOUR for n in range(1, 5)))

    for at in times:
        clock.set_us(at)
        rows.append(("a", 1))
        flow = SmallFlow(
            tmp_path / "store", rows, tmp_path / "out", process=Minutes, clock=clock
        )
        flow.run()
        fired.append(sorted(n for _, n in flow.written()))

    # That of the first record in the wrong epoch; those since, an hour later each.
    assert fired == [[], [1], [1], [1, 3], [1, 3, 4], [1, 3, 4, 5]]
    assert [r.message for r in caplog.records if "the clock" in r.message] == [
        "the clock says 2026-01-01T01:00:00Z, but had come to 2035-12-30T00:00:00Z in"
        " epoch 1; going on with what it says now: timers and expiries that were set"
        " then keep their times"
    ]
