"""Records/s of each Nexmark query, beside Structured Streaming's where it has it.

    python -m benchmarks.nexmark [--queries q5 q7] [--events 200000] [--peers none]

Events happen at the published 10,000 a second of event time. Each query runs alone, in
a process of its own, over a backlog: an epoch, or batch, of so many events.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from examples.nexmark.events import Events
from examples.nexmark.queries import QUERIES, Market

from benchmarks import harness, nexmark_structured, streaming
from benchmarks.common import Epoch, Window, epochs_of, median, save, show

if TYPE_CHECKING:
    from collections.abc import Callable

# More than any run will read; the unit of disorder is 10 ms.
EVENTS = Events(count=10**12, shuffled=100)


def riverlock(query: str, events: int, window: Window) -> list[Epoch]:
    import riverlock as rl

    flow = rl.Flow("bench")
    results = QUERIES[query].build(Market(flow, EVENTS))
    results.write(rl.sinks.for_each_epoch(_nothing), uid="out")
    return epochs_of(flow, window, epoch_target=None, max_rows_per_epoch=events)


def _nothing(frame: Any, epoch: int) -> None:
    """Take the rows as every sink does, and leave it at that."""


def structured(query: str, events: int, window: Window) -> list[Epoch]:
    build, mode = nexmark_structured.QUERIES[query]

    def start(numbers: Any) -> Any:
        tables = nexmark_structured.tables(EVENTS, numbers)
        return streaming.to_nowhere(build(tables), mode=mode)

    return streaming.batches_of(["n as id"], events, window, start)


CONTENDERS: dict[str, Callable[[str, int, Window], list[Epoch]]] = {
    "riverlock": riverlock,
    "Structured Streaming": structured,
}


PEER = "Structured Streaming"
# Beside warm-up and measuring: to start, to let the last epoch end, and to stop.
BESIDE_SECONDS = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--events", type=int, default=200_000, help="per epoch")
    parser.add_argument("--warm-up", type=float, default=30, help="seconds")
    parser.add_argument("--seconds", type=float, default=10, help="measured")
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    harness.add_options(parser, [PEER])
    chosen = parser.parse_args()
    if chosen.only:
        window = Window(chosen.warm_up, chosen.seconds)
        epochs = CONTENDERS[chosen.only](chosen.queries[0], chosen.events, window)
        print(json.dumps([e.rate for e in epochs]))
        return
    runs = [each for query in chosen.queries for each in contenders(query, chosen)]
    found = harness.measure("benchmarks.nexmark", runs, _line, chosen)
    rates = {
        query: {
            name: median(found[f"{query}, {name}"][0])
            for name in CONTENDERS
            if f"{query}, {name}" in found
        }
        for query in chosen.queries
    }
    show(
        f"Nexmark, {chosen.events:,} events an epoch: events/s",
        ["query", *CONTENDERS, "riverlock is"],
        [[query, *_cells(found)] for query, found in rates.items()],
    )
    save("nexmark", {"records_per_second": rates, **vars(chosen)})


def contenders(query: str, chosen: argparse.Namespace) -> list[harness.Contender]:
    """Return who runs a query: ours, and the peer where it has it."""
    options = ["--queries", query, "--events", str(chosen.events)]
    options += ["--warm-up", str(chosen.warm_up), "--seconds", str(chosen.seconds)]
    most = 2 * (chosen.warm_up + chosen.seconds) + BESIDE_SECONDS
    return [
        harness.Contender(
            *(f"{query}, {name}", [*options, "--only", name], most),
            peer=PEER if name == PEER else None,
        )
        for name in CONTENDERS
        if name != PEER or query in nexmark_structured.QUERIES
    ]


def _line(rates: list[float]) -> str:
    return f"{median(rates):,.0f} events/s"


def _cells(rates: dict[str, float]) -> list[str]:
    mine, theirs = rates.get("riverlock"), rates.get(PEER)
    shown = ["" if rate is None else f"{rate:,.0f}" for rate in (mine, theirs)]
    return [*shown, f"{mine / theirs:.2f} x" if mine and theirs else ""]


if __name__ == "__main__":
    main()
