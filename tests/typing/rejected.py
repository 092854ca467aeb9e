"""Mistakes that type checkers find before anything runs; never run.

Both checkers are told to expect each of them, and that nothing else is expected: one
that is found no more is an error.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from datetime import datetime
from typing import Any

import riverlock as rl


class Odd(rl.Process):
    limit = rl.Param(5)

    def on_event(self, record: Any) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self.limit.append(3)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

    def on_timer(self, at: datetime, ctx: rl.Context) -> None:
        ctx.set_timer("10 minutes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        ctx.emitt(at)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def build(flow: rl.Flow, stream: rl.Stream) -> None:
    flow.read("in/")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.write("out/")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.key_by(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.count()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    stream.key_by("user").process(Odd)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.key_by("user").window("1 hour")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.map(5, "n int")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.region("other", guarantee="at_least_once")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stream.region("other", bound=1_000)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rl.Flow("name", guarantee="sometimes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rl.tumbling(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def run(flow: rl.Flow) -> None:
    flow.run("store/", availableNow=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    flow.run("store/", parallelism="many")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rows: str = flow.start("store/").status().rows  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(flow.run("store/").rate)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    print(flow.replay("store/", 1).match)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    rl.stores.forkk("store/", "new/")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    print(rows)
