"""Running count and sum per key: a Process against everything that is alike.

    python -m benchmarks.keyed_state [--keys 100000] [--rows 400000] [--peers NAME ...]

All read numbers 0, 1, 2, ..., derive key and amount by the same hashes, keep two values
per key and write nothing out; all but the limit make every epoch or batch durable.

``limit`` is what CPython allows: the same ``on_event`` called in a bare loop over
Arrow batches like ours, state in a dict, no Spark, nothing durable, a process per core.

Records/s is the median of steady epochs: the first ones, in which workers and the JIT
compiler start, are left out. Contenders take turns, in several rounds, because shared
machines are not equally fast all the time.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import streaming
from benchmarks.common import Window, in_child, median, rates_of, save, show

if TYPE_CHECKING:
    from collections.abc import Callable

AMOUNT = "cast(pmod(xxhash64({n}, 1), 10000) as double) / 100"
KEY = "pmod(xxhash64({n}), {keys})"


class Plain:
    """What the user writes; with and without Riverlock."""

    n = 0
    total = 0.0

    def on_event(self, record: Any, ctx: Any) -> None:
        self.n += 1
        self.total += record.amount


def riverlock(keys: int, rows: int, window: Window) -> list[float]:
    import riverlock as rl

    class Running(rl.Process):
        n = rl.Value("bigint", default=0)
        total = rl.Value("double", default=0.0)
        on_event = Plain.on_event

    flow = rl.Flow("bench")
    columns = {"k": KEY.format(n="id", keys=keys), "amount": AMOUNT.format(n="id")}
    stream = flow.read(rl.sources.generator(columns, rows=rows * 10_000))
    stream.key_by("k").process(Running(), uid="running")
    return rates_of(flow, rows, window)


def structured(
    build: Callable[[Any], Any], keys: int, rows: int, window: Window
) -> list[float]:
    columns = [
        f"{KEY.format(n='n', keys=keys)} as k",
        f"{AMOUNT.format(n='n')} as amount",
    ]
    return streaming.rates(columns, rows, window, build)


def limit(keys: int, rows: int, window: Window) -> list[float]:
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        share = [(keys // cores, rows // cores)] * cores
        done = list(pool.map(_bare_loop, share))
    return [sum(rates) for rates in zip(*done, strict=True)]


def _bare_loop(share: tuple[int, int]) -> list[float]:
    """Return records/s of ten batches."""
    import gc

    import numpy as np
    import pyarrow as pa

    from riverlock.core.record import record_class
    from riverlock.core.types import schema_of

    keys, rows = share
    chance = np.random.default_rng(7)
    record = record_class(schema_of("k bigint, amount double"))
    states: dict[int, dict[str, Any]] = {}
    running = Plain()
    gc.disable()
    rates = []
    for _ in range(10):
        batch = pa.table(
            {"k": chance.integers(0, keys, rows), "amount": chance.random(rows)}
        )
        began = time.perf_counter()
        numbers = batch["k"].to_numpy().tolist()
        amounts = batch["amount"].to_numpy().tolist()
        for k, amount in zip(numbers, amounts, strict=True):
            state = states.get(k)
            if state is None:
                state = states[k] = {}
            running.__dict__ = state
            running.on_event(record(k, amount), None)
        rates.append(rows / (time.perf_counter() - began))
    return rates[3:]


CONTENDERS: dict[str, Callable[[int, int, Window], list[float]]] = {
    "riverlock": riverlock,
    "transformWithState": partial(structured, streaming.transform_with_state),
    "transformWithStateInPandas": partial(
        structured, streaming.transform_with_state_in_pandas
    ),
    "applyInPandasWithState": partial(structured, streaming.apply_in_pandas_with_state),
    "native aggregate (JVM)": partial(structured, streaming.native),
    "limit (CPython)": limit,
}
SHORT = ("riverlock", "transformWithState", "native aggregate (JVM)", "limit (CPython)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=400_000, help="records per epoch")
    parser.add_argument(
        "--peers", nargs="+", choices=("all", *CONTENDERS), default=SHORT
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm-up", type=float, default=40, help="seconds")
    parser.add_argument("--seconds", type=float, default=15, help="measured")
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        window = Window(chosen.warm_up, chosen.seconds)
        print(json.dumps(CONTENDERS[chosen.only](chosen.keys, chosen.rows, window)))
        return
    peers = CONTENDERS if "all" in chosen.peers else chosen.peers
    found: dict[str, list[float]] = {}
    for _ in range(chosen.rounds):
        for name in dict.fromkeys(["riverlock", *peers]):
            found.setdefault(name, []).extend(
                in_child(
                    "benchmarks.keyed_state",
                    *("--only", name, "--keys", str(chosen.keys)),
                    *("--rows", str(chosen.rows), "--warm-up", str(chosen.warm_up)),
                    *("--seconds", str(chosen.seconds)),
                )
            )
    rates = {name: median(values) for name, values in found.items()}
    mine = rates["riverlock"]
    show(
        f"count and sum, {chosen.keys:,} keys, {chosen.rows:,} records an epoch",
        ["", "records/s", "riverlock is"],
        [
            [n, f"{r:,.0f}", f"{mine / r:.1f} x" if mine > r else f"{mine / r:.0%} of"]
            for n, r in rates.items()
        ],
    )
    ratios = {n: mine / r for n, r in rates.items()}
    save(
        f"keyed_state_{chosen.keys}",
        {"records_per_second": rates, "ratios": ratios, **vars(chosen)},
    )


if __name__ == "__main__":
    main()
