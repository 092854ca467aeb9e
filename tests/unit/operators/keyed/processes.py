"""Processes for the tests of this folder, and their harness."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from riverlock.core.times import seconds
from riverlock.program.process import Process
from riverlock.state.spec import Value
from riverlock.testing import Harness, harness

T = datetime(2024, 1, 1, tzinfo=UTC)
INPUT = "k string, v long, at timestamp"


def make(process: Process, **options: Any) -> Harness:
    options.setdefault("input", INPUT)
    options.setdefault("event_time", "at" if options["input"] == INPUT else None)
    return harness(process, key=options.pop("key", "k"), **options)


def row(k: str | None, v: int | None = 1, at: datetime | None = T) -> Any:
    return (k, v, at)


class Tell(Process):
    """Tells everything that happens to a key."""

    output = "k string, what string, time timestamp"

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, f"event {record.v}", ctx.time

    def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
        yield ctx.key, f"timer {(at - T).total_seconds():.0f}", ctx.time


def told(h: Harness, key: str | None = "a") -> list[str]:
    return [what for k, what, _ in h.output if k == key]


class Alarm(Tell):
    """Sets a timer ``v`` seconds after T."""

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.set_timer(T + seconds(record.v))
        yield from super().on_event(record, ctx)


class Sum(Process):
    output = "k string, total double"
    total = Value("double", default=0)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        assert type(self.total) is float
        if record.v is None:
            self.total = None
        else:
            self.total += record.v
        yield ctx.key, self.total
