"""Kafka to Kafka through state, on Spark; runs in children that faults kill."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import riverlock as rl


class Running(rl.Process):
    """Gives the number and the sum of a user's amounts so far."""

    output = "user string, count bigint, total bigint"
    count = rl.Value("long", default=0)
    total = rl.Value("long", default=0)

    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[tuple[Any, ...]]:
        self.count += 1
        self.total += record.amount
        yield record.user, self.count, self.total


def flow(servers: str, source: str, target: str) -> rl.Flow:
    made = rl.Flow("totals")
    orders = made.read(
        rl.sources.kafka(
            servers, source, value="json", schema="user string, amount bigint"
        ),
        uid="in",
    )
    totals = orders.key_by("user").process(Running(), uid="running")
    totals.write(rl.sinks.kafka(servers, target, key="user"), uid="out")
    return made


def run(store: str, *places: str, **options: Any) -> None:
    """Take what is there, in small epochs."""
    flow(*places).run(
        store,
        available_now=True,
        epoch_target=None,
        max_rows_per_epoch=60,
        **options,
    )


if __name__ == "__main__":
    run(*sys.argv[1:])
