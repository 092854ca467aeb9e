"""Running count and sum per key: a Process against everything that is alike.

    python -m benchmarks.keyed_state [--keys 100000] [--rows 400000] [--peers NAME ...]

All read numbers 0, 1, 2, ..., derive key and amount by the same hashes, keep two values
per key and write nothing out; all but the limit make every epoch or batch durable.

``limit`` is what CPython allows: the same ``on_event`` called in a bare loop over
Arrow batches like ours, state in a dict, no Spark, nothing durable, a process per core.
``exchange`` is what Spark allows: the same rows brought to the task that owns their key
and to Python, ten epochs' worth in one job, where nothing is done with them. Both keep
all cores busy, so no engine of this design can do better than both one after the other.
bytewax takes part if it is installed, PyFlink if FLINK_PYTHON names a Python that has
it (``benchmarks.flink_flow``).

Records/s is the median of steady epochs: the first ones, in which workers and the JIT
compiler start, are left out.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks import flink_flow, streaming
from benchmarks.common import Epoch, Window, epochs_of
from benchmarks.contest import contest

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


def riverlock(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    flow = running(chosen.keys)
    return epochs_of(flow, window, epoch_target=None, max_rows_per_epoch=chosen.rows)


def running(keys: int, source: Any = None, process: Any = None) -> Any:
    """Return the flow that counts and sums, over a backlog unless told otherwise."""
    import riverlock as rl

    class Running(rl.Process):
        n = rl.Value("bigint", default=0)
        total = rl.Value("double", default=0.0)
        on_event = Plain.on_event

    flow = rl.Flow("bench")
    stream = flow.read(numbers(keys) if source is None else source, uid="in")
    stream.key_by("k").process(process or Running(), uid="running")
    return flow


def filling(keys: int, rows: int, process: Any = None) -> Any:
    """Return the flow over rows that first make all keys, then touch any of them."""
    import riverlock as rl

    columns = {
        "k": f"if(id < {keys}, id, {KEY.format(n='id', keys=keys)})",
        "amount": "cast(id as double)",
    }
    return running(keys, rl.sources.generator(columns, rows=rows), process)


def numbers(keys: int) -> Any:
    """Return the records of Riverlock's side: more than there is time for."""
    import riverlock as rl

    columns = {"k": KEY.format(n="id", keys=keys), "amount": AMOUNT.format(n="id")}
    return rl.sources.generator(columns, rows=10**12)


def structured(
    build: Callable[[Any], Any], chosen: argparse.Namespace, window: Window
) -> list[Epoch]:
    columns = [
        f"{KEY.format(n='n', keys=chosen.keys)} as k",
        f"{AMOUNT.format(n='n')} as amount",
    ]

    def start(records: Any) -> Any:
        return streaming.to_nowhere(build(records))

    return streaming.batches_of(columns, chosen.rows, window, start)


def limit(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        share = [(chosen.keys // cores, chosen.rows // cores)] * cores
        done = list(pool.map(_bare_loop, share))
    return [
        Epoch(chosen.rows / sum(rates), chosen.rows)
        for rates in zip(*done, strict=True)
    ]


def _bare_loop(share: tuple[int, int]) -> list[float]:
    """Return records/s of ten batches."""
    import gc

    import numpy as np
    import pyarrow as pa

    from riverlock.core.types import schema_of
    from riverlock.core.values.record import record_class

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


def exchange(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    from pyspark.sql import functions as F

    from riverlock.spark.session import local_session

    spark = local_session()
    tasks = spark.sparkContext.defaultParallelism
    rows = chosen.rows * 10
    found: list[Epoch] = []
    began = time.monotonic()
    while not window.is_over(began, len(found)):
        numbers = spark.range(rows).selectExpr(
            f"{KEY.format(n='id', keys=chosen.keys)} as k",
            f"{AMOUNT.format(n='id')} as amount",
            "id as position",
        )
        owned = numbers.repartitionById(tasks, F.expr(f"cast(k % {tasks} as int)"))
        start = time.monotonic()
        owned.mapInArrow(_counted, "n bigint").collect()
        found.append(Epoch(time.monotonic() - start, rows))
        window.note(began, len(found))
    return window.steady(found)


def _counted(batches: Any) -> Any:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"n": [sum(b.num_rows for b in batches)]})


def bytewax(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    from benchmarks.bytewax_flow import measured

    return measured(chosen.keys, window)


def flink(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    return flink_flow.measured(chosen.keys, window)


CONTENDERS: dict[str, Callable[[argparse.Namespace, Window], list[Epoch]]] = {
    "riverlock": riverlock,
    "transformWithState": partial(structured, streaming.transform_with_state),
    "transformWithStateInPandas": partial(
        structured, streaming.transform_with_state_in_pandas
    ),
    "applyInPandasWithState": partial(structured, streaming.apply_in_pandas_with_state),
    "native aggregate (JVM)": partial(structured, streaming.native),
    "limit (CPython)": limit,
    "exchange (Spark)": exchange,
}
if find_spec("bytewax"):
    CONTENDERS["bytewax, snapshots each second"] = bytewax
if flink_flow.PYTHON in os.environ:
    CONTENDERS["PyFlink"] = flink


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=400_000, help="records per epoch")
    title = "count and sum, {keys:,} keys, {rows:,} records an epoch"
    contest("keyed_state", title, CONTENDERS, parser)


if __name__ == "__main__":
    main()
