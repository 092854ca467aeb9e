"""Tests as users write them, of a process, a flow, a sink and a source; never run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import riverlock as rl


def of_a_process(process: rl.Process) -> None:
    clock = rl.testing.ManualClock(0)
    h: rl.testing.Harness = rl.testing.harness(
        process, key="user", input="user string, at timestamp", clock=clock
    )
    rows: list[tuple[Any, ...]] = h.send({"user": "ann"}, ("bob", None))
    with h.epoch():
        h.send_right({"user": "ann"})
        h.broadcast({"name": "limit"})
        h.initial({"user": "ann"})
    h.advance_watermark("1 hour")
    h.advance_clock(rl.hours(1))
    h.set_clock(h.timers("ann")[0])
    h.set(limit=5.0)
    assert h.output[0] == h.side("odd")[0] == rows[0]
    assert h.rows()[0]["user"] == h.keys()[0]
    assert h.state("spent", key="ann") == 3.0
    assert h.outputs["main"].names == ("user",)
    h.send_timed([(("ann", None), 5)])
    assert h.timed("main")[0][1] == 5
    h.clear_output()
    again = h.restart(h.snapshot())
    assert again.dead_letters == []


def of_a_flow(flow: rl.Flow) -> None:
    flow.read(rl.testing.rows("user string", [("ann",)], bounded=True), uid="rows")
    run: rl.testing.LocalRun = rl.testing.run_local(flow, [("ann", 1)], epoch_rows=1)
    run.set("v", limit=5.0)
    assert run.rows("memory") == run.rows()
    assert run.operator("v").state("spent", key="ann") == 1.0


class TestSink(rl.testing.SinkConformance):
    def make_sink(self, folder: Path) -> rl.sinks.Sink:
        return rl.sinks.files(str(folder / "out"), format="json")

    def read_rows(self, sink: rl.sinks.Sink) -> Iterable[tuple[int, str, int]]:
        return []


class TestSource(rl.testing.SourceConformance):
    limits_rows = False

    def make_source(self, folder: Path, *, bounded: bool) -> rl.sources.Source:
        return rl.sources.files(str(folder), format="json", schema="id long")

    def add_rows(self, source: rl.sources.Source, count: int) -> list[tuple[int, str]]:
        return []


def of_runs(sink: rl.testing.SinkRun, source: rl.testing.SourceRun) -> None:
    print(sink.run, source.clock.now_us())
