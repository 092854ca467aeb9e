"""A flow on a real store, without Spark: the engine's own loop, tasks and sinks.

Rows ``(key, number)`` come from a list, an operator adds them up, files get the sums.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.unit.snapshot.local_flow import KEEP, LocalFlow, source

import riverlock as rl
from riverlock.snapshot.state_reader import read_entries

__all__ = ["KEEP", "Row", "SmallFlow", "output_of", "state_of"]

Row = tuple[str, int]
GROUPS = 16


class Sums(rl.Process):
    output = "k string, total long"
    total = rl.Value("long", default=0)
    recent = rl.List("long")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.total += row.v
        self.recent.append(row.v)
        ctx.set_timer(ctx.now + rl.hours(row.v), processing=True)
        yield row.k, self.total


def state_of(rows: list[Row]) -> dict[str, tuple[int, list[int]]]:
    """Return what an independent computation says the state is."""
    found: dict[str, tuple[int, list[int]]] = {}
    for key, number in rows:
        total, recent = found.get(key, (0, []))
        found[key] = (total + number, [*recent, number])
    return found


def output_of(rows: list[Row]) -> Counter[Row]:
    """Return what an independent computation says the output is."""
    sums: Counter[str] = Counter()
    found: Counter[Row] = Counter()
    for key, number in rows:
        sums[key] += number
        found[key, sums[key]] += 1
    return found


@dataclass
class SmallFlow(LocalFlow):
    """The flow ``small`` on a store; each ``run`` is one life of a driver."""

    process: type[rl.Process] = Sums

    def build(self) -> rl.Flow:
        flow = rl.Flow("small", key_groups=GROUPS)
        rows = flow.read(source("k string, v long"), uid="rows")
        rows.key_by("k").process(self.process(), uid="op").write(
            rl.sinks.files(str(self.out), format="json"), uid="out"
        )
        return flow

    def state(self, at: str | int | None = None) -> dict[str, tuple[int, list[int]]]:
        """Return the state as the files of an epoch say."""
        manifest = self.catalog.resolve(at)
        entries = read_entries(
            self.catalog.storage, manifest.operators["op"], now_us=manifest.now_us
        )
        found: dict[str, tuple[int, list[int]]] = {}
        for row in [] if entries is None else entries.to_pylist():
            key = row["key"]["k"]
            total, recent = found.get(key, (0, []))
            if row["entry"] == "values":
                total = row["data"]["total"]
            elif row["entry"] == "list":
                recent = [*recent, row["data"]["recent"]["value"]]
            found[key] = (total, recent)
        return found

    def output(self) -> Counter[Row]:
        """Return the rows that readers of the output see."""
        return self.written()
