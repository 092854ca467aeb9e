"""A flow with event time on a real store, without Spark: windows, timers, late rows.

Rows ``(key, number, at)`` come in any order. Windows of ten seconds add numbers up, and
an operator gives every row once more seven seconds of event time later.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

from tests.unit.snapshot.local_flow import LocalFlow, second, source

import riverlock as rl
from riverlock.snapshot.retention.policy import Retention
from riverlock.snapshot.state_reader import read_entries

EVERY = Retention(epochs=10_000, grace=timedelta(0))
DELAY = 4
SIZE = 10
AFTER = 7


class Echo(rl.Process):
    """Gives each row twice: at once with a random number, and later by a timer."""

    output = "k string, at timestamp, v long"
    pending = rl.Map("timestamp", "long")
    dice = rl.SideOutput("k string, v long, roll double")

    def on_event(self, row: Any, ctx: Any) -> None:
        due = row.at + timedelta(seconds=AFTER)
        self.pending[due] = row.v
        ctx.set_timer(due)
        ctx.emit(self.dice, (row.k, row.v, ctx.random.random()))

    def on_timer(self, at: Any, ctx: Any) -> Any:
        value = self.pending[at]
        del self.pending[at]
        yield ctx.key, at, value


class TimedFlow(LocalFlow):
    """The flow ``timed``; its sinks are ``out`` (windows), ``echoes`` and ``dice``."""

    def build(self) -> rl.Flow:
        flow = rl.Flow("timed", key_groups=8)
        rows = flow.read(source("k string, v long, at timestamp"), uid="rows")
        timed = rows.event_time("at", delay=f"{DELAY} seconds")
        windows = timed.key_by("k").window(rl.tumbling(f"{SIZE} seconds"))
        added = windows.reduce(
            lambda a, b: {"k": a.k, "v": a.v + b.v, "at": min(a.at, b.at)}, uid="sums"
        )
        echo = timed.key_by("k").process(Echo(), uid="echo")
        for stream, name in (
            (added, "out"),
            (echo, "echoes"),
            (echo.side("dice"), "dice"),
        ):
            folder = self.out.with_name(name)
            stream.write(rl.sinks.files(str(folder), format="json"), uid=name)
        return flow

    def contents(self, epoch: int) -> dict[str, Any]:
        """Return all that an epoch says of state, timers, time and positions."""
        manifest, storage = self.catalog.manifest(epoch), self.catalog.storage
        found: dict[str, Any] = {
            "ends": {uid: span.end for uid, span in manifest.inputs.items()},
            "watermarks": manifest.watermarks,
            "now_us": manifest.now_us,
        }
        for uid, state in manifest.operators.items():
            entries = read_entries(storage, state, now_us=manifest.now_us)
            rows = [] if entries is None else entries.to_pylist()
            found[uid] = (
                sorted(map(repr, rows)),
                state.timers,
                state.watermark_us,
                state.entries,
            )
        return found


def some_rows(number: int, *, seed: int) -> list[Any]:
    """Return rows that are out of order; some come after their window is over."""
    chance = random.Random(seed)
    found = []
    for n in range(number):
        back = chance.choice([0, 0, 1, 3, 25])
        # A microsecond of its own each, so that no two timers are one.
        at = second(n - back + n / 1_000_000)
        found.append((f"k{chance.randrange(4)}", n, at))
    return found


def windows_of(rows: list[Any], epoch_rows: int) -> Counter[tuple[str, int, int]]:
    """Return the sums that a batch gives, of rows that came before time had passed."""
    found: dict[tuple[str, int], int] = {}
    newest: float | None = None
    late = 0
    for begin in range(0, len(rows), epoch_rows):
        mine = rows[begin : begin + epoch_rows]
        passed = None if newest is None else newest - DELAY
        for key, value, at in mine:
            start = int((at - second(0)).total_seconds() // SIZE) * SIZE
            if passed is not None and start + SIZE <= passed:
                late += 1
                continue
            found[key, start] = found.get((key, start), 0) + value
        times = [(at - second(0)).total_seconds() for _, _, at in mine]
        newest = max([*times, *([] if newest is None else [newest])])
    assert late > 0, "no row was late"
    return Counter((k, v, start) for (k, start), v in found.items())


def text(at: Any) -> str:
    """Return an instant as files of JSON have it."""
    return str(at.isoformat()).replace("+00:00", "Z")


def echoes_of(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    """Return what timers give for rows."""
    later = timedelta(seconds=AFTER)
    return Counter((key, text(at + later), value) for key, value, at in rows)


def check_output(flow: TimedFlow, epoch_rows: int) -> None:
    """Compare what readers see with a batch over all rows."""
    found = Counter(
        {(k, v, start): n for (k, v, _, start, _), n in flow.written().items()}
    )
    expected = windows_of(flow.rows, epoch_rows)
    assert found == Counter(
        {(k, v, text(second(start))): n for (k, v, start), n in expected.items()}
    )
    assert flow.written("echoes") == echoes_of(flow.rows)
    rolled = Counter((k, v) for k, v, _ in flow.written("dice").elements())
    assert rolled == Counter((k, v) for k, v, _ in flow.rows)
