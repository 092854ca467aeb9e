"""kill -9 of the driver at every named point, in one thread, without Spark.

Rows 1 to 7 of the matrix. One store survives the whole sequence. The rule for every
crash: before the manifest is durable the epoch is aborted and redone over the same
rows; after it, the next run completes it. Nothing else is allowed. What needs tasks in
processes of their own is in ``tests/chaos/test_kill_points.py``.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.snapshot.killing import killed_at
from tests.unit.snapshot.timed_flow import EVERY, TimedFlow, check_output, some_rows

from riverlock.core import faults
from riverlock.snapshot.verbs.verify import verify

PER_EPOCH = 6
SINKS = ("out", "echoes", "dice")


@dataclass(frozen=True)
class Crash:
    """One life of a driver and its end.

    Attributes:
        point: Where it dies.
        at: At which hit.
        parallelism: The number of tasks of this life.
        epochs: How many more epochs are durable by then, at least.
        loses_copies: The working copies are gone when it starts.
    """

    point: str
    at: int
    parallelism: int
    epochs: int = 0
    loses_copies: bool = False


# Commits of recovery pass P9 three times and P10, P11 once before the first new epoch.
SEQUENCE = (
    Crash("P1", 3, 1, epochs=2),
    Crash("P2", 15, 1, epochs=1),
    Crash("P4", 3, 2),
    Crash("P5", 4, 2),
    Crash("P6", 2, 2),
    # The run and the three sinks are claimed by the same kind of put before.
    Crash("P7", 5, 7),
    Crash("P8", 1, 7, epochs=1),
    # No window closes in this epoch: the second of its commits is one that shows.
    Crash("P9", 5, 3, epochs=1),
    Crash("P10", 2, 3, epochs=1),
    Crash("P11", 2, 3, epochs=1),
    Crash("P12", 1, 3),
    # Four in a row without a step forward, one of them while rescaling.
    Crash("R1", 1, 1),
    Crash("R2", 1, 1, loses_copies=True),
    Crash("R2", 3, 1, loses_copies=True),
    Crash("R3", 1, 1),
    Crash("R4", 1, 1),
)
# At this one more is written than the changes of tasks, so they are looked for.
SEARCHED = "P3"

Ranges = dict[int, tuple[int, int]]


@pytest.fixture
def flow(tmp_path: Path) -> TimedFlow:
    rows = some_rows(240, seed=3)
    return TimedFlow(tmp_path / "store", rows, tmp_path / "out", ends=True)


def test_every_fail_point_has_a_crash() -> None:
    assert {SEARCHED, *(c.point for c in SEQUENCE)} == set(faults.POINTS)


def test_driver_killed_at_every_point_loses_and_duplicates_nothing(
    flow: TimedFlow, tmp_path: Path
) -> None:
    for crash in SEQUENCE:
        die(flow, crash)
    die_with_a_change_file(flow)
    flow.parallelism = 1
    live(flow)

    check_output(flow, PER_EPOCH)
    assert [r.problems for r in verify(flow.catalog) if not r.is_whole] == []
    # Every epoch is what it is in a life without a crash.
    whole = TimedFlow(tmp_path / "whole", flow.rows, tmp_path / "w/out", ends=True)
    live(whole)
    epochs = flow.catalog.epochs()
    assert epochs == whole.catalog.epochs()
    assert len(epochs) >= 40
    for epoch in epochs:
        assert flow.contents(epoch) == whole.contents(epoch)


def live(flow: TimedFlow) -> None:
    flow.run(epoch_rows=PER_EPOCH, retention=EVERY)


def die(flow: TimedFlow, crash: Crash) -> None:
    """Let a driver live and be killed; what it leaves is what the rule says."""
    before, flow.parallelism = decided(flow), crash.parallelism
    if crash.loses_copies:
        shutil.rmtree(flow.store / ".working")

    assert killed_at(crash.point, lambda: live(flow), count=crash.at), crash

    after = decided(flow)
    assert before.items() <= after.items(), "the past has changed"
    check_cut(flow, crash, before, after)


def check_cut(flow: TimedFlow, crash: Crash, before: Ranges, after: Ranges) -> None:
    newest = max(after, default=-1)
    visible = [shown(flow, sink) for sink in SINKS]
    assert all(max(v, default=-1) <= newest for v in visible)
    has_newest = sum(newest in v for v in visible)
    match crash.point:
        case "R1" | "R2" | "R3" | "R4":
            assert after == before, "recovery alone decides nothing"
        case "P8":
            assert has_newest == 0
        case "P9":
            assert has_newest == 1
        case "P10" | "P11":
            # Windows close only now and then.
            assert has_newest >= 2
        case "P5" | "P6" | "P7":
            staged = f"*/_riverlock/staged/{newest + 1:012d}/*"
            assert list(flow.out.parent.glob(staged)), "nothing was staged"
            if crash.point == "P7":
                unnamed = f'"epoch":{newest + 1},'.encode()
                assert any(unnamed in file.read_bytes() for file in temporaries(flow))
        case _:
            pass
    assert len(after) - len(before) >= crash.epochs


def die_with_a_change_file(flow: TimedFlow) -> None:
    """Be killed at one put after the other, until one of a change file is met."""
    for count in range(1, 50):
        known = temporaries(flow)
        die(flow, Crash(SEARCHED, count, 2))
        left = temporaries(flow) - known
        if any(b"PAR1" in file.read_bytes() for file in left):
            return
    raise AssertionError("no change file was written")


def decided(flow: TimedFlow) -> Ranges:
    found = {}
    for epoch in flow.catalog.epochs():
        span = flow.catalog.manifest(epoch).inputs["rows"]
        found[epoch] = (span.start, span.end)
    return found


def shown(flow: TimedFlow, sink: str) -> set[int]:
    """Return the epochs that readers of a sink see."""
    folder = flow.out.with_name(sink)
    return {int(path.name.removeprefix("epoch=")) for path in folder.glob("epoch=*")}


def temporaries(flow: TimedFlow) -> set[Path]:
    """Return the files that were written and had no name yet."""
    return set((flow.store / ".tmp").glob("*"))
