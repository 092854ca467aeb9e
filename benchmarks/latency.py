"""From the creation of an event to its result in the sink, p50 and p99.

    python -m benchmarks.latency [--paces 1000 20000]

A thread drops a file of new events ten times a second; both engines read that folder,
keep count and sum per key, and hand a row per event to Python once it is committed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import in_child, save, show

SCHEMA = "k bigint, amount double, created bigint"
KEYS = 10_000
TICK = 0.1


class Feeder:
    """Writes files of events that were created since the last one."""

    def __init__(self, folder: Path, pace: int) -> None:
        self._folder, self._pace = folder, pace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _feed(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        chance = np.random.default_rng(7)
        rows, number = int(self._pace * TICK), 0
        due = time.time()
        while not self._over.wait(max(0.0, due - time.time())):
            created = (due - TICK + np.arange(rows) * TICK / rows) * 1e6
            table = pa.table(
                {
                    "k": chance.integers(0, KEYS, rows),
                    "amount": chance.random(rows),
                    "created": created.astype(np.int64),
                }
            )
            hidden = self._folder / f".{number}.tmp"
            pq.write_table(table, hidden)
            hidden.rename(self._folder / f"{number:08d}.parquet")
            number += 1
            due += TICK


class Clock:
    """Notes how old events are when their rows arrive."""

    def __init__(self, warm_up: float) -> None:
        self._from_us = (time.time() + warm_up) * 1e6
        self._ages: list[np.ndarray] = []

    def note(self, created: Any) -> None:
        now_us = time.time() * 1e6
        times = np.asarray(created, dtype=np.int64)
        steady = times[times >= self._from_us]
        if len(steady):
            self._ages.append((now_us - steady) / 1e6)

    def quantiles(self) -> list[float]:
        """Return p50 and p99; nothing if no event came through in time."""
        if not self._ages:
            return []
        return [float(q) for q in np.quantile(np.concatenate(self._ages), [0.5, 0.99])]


def riverlock(folder: Path, clock: Clock, seconds: float) -> None:
    import riverlock as rl

    class Running(rl.Process):
        output = "k bigint, n bigint, total double, created bigint"
        n = rl.Value("bigint", default=0)
        total = rl.Value("double", default=0.0)

        def on_event(self, e: Any, ctx: Any) -> Any:
            self.n += 1
            self.total += e.amount
            return [(e.k, self.n, self.total, e.created)]

    out = rl.sinks.memory()
    flow = rl.Flow("latency")
    source = rl.sources.files(str(folder), format="parquet", schema=SCHEMA)
    stream = flow.read(source).key_by("k").process(Running(), uid="running")
    stream.write(out, uid="out")
    seen = 0

    def see(status: Any) -> None:
        nonlocal seen
        rows = out.rows()
        clock.note([row[3] for row in rows[seen:]])
        seen = len(rows)

    with tempfile.TemporaryDirectory() as store:
        handle = flow.start(store, on_status=see)
        handle.wait(seconds)
        handle.stop()


def structured(folder: Path, clock: Clock, seconds: float) -> None:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from benchmarks.streaming import ROCKSDB, STATE
    from riverlock.spark.session import local_session

    class Running(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("state", STATE)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            import pandas as pd

            n, total = self._state.get() or (0, 0.0)
            for frame in rows:
                n += len(frame)
                total += float(frame["amount"].sum())
                yield pd.DataFrame({"k": frame["k"], "created": frame["created"]})
            self._state.update((n, total))

        def close(self) -> None:
            pass

    spark = local_session(
        conf={"spark.sql.streaming.stateStore.providerClass": ROCKSDB}
    )
    events = spark.readStream.schema(SCHEMA).parquet(str(folder))
    made = events.groupBy("k").transformWithStateInPandas(
        Running(), "k bigint, created bigint", outputMode="Update", timeMode="None"
    )

    def each(frame: Any, number: int) -> None:
        clock.note(frame.toPandas()["created"])

    with tempfile.TemporaryDirectory() as place:
        writer = made.writeStream.outputMode("update").foreachBatch(each)
        query = writer.option("checkpointLocation", place).start()
        query.awaitTermination(int(seconds))
        query.stop()


ENGINES = {"riverlock": riverlock, "transformWithStateInPandas": structured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paces", type=int, nargs="+", default=[1_000, 20_000])
    parser.add_argument("--warm-up", type=float, default=30)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--only", choices=ENGINES, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        with tempfile.TemporaryDirectory() as place:
            feeder = Feeder(Path(place), chosen.paces[0])
            clock = Clock(chosen.warm_up)
            ENGINES[chosen.only](Path(place), clock, chosen.warm_up + chosen.seconds)
            feeder.stop()
        print(json.dumps(clock.quantiles()))
        return
    found = {}
    for pace in chosen.paces:
        for name in ENGINES:
            options = ("--warm-up", str(chosen.warm_up), "--seconds")
            found[f"{name}, {pace:,}/s"] = in_child(
                "benchmarks.latency",
                *("--only", name, "--paces", str(pace)),
                *(*options, str(chosen.seconds)),
            )
    show(
        "seconds from an event to its committed row",
        ["", "p50", "p99"],
        [
            [name, *([f"{q:.2f}" for q in quantiles] or ["did not keep up", ""])]
            for name, quantiles in found.items()
        ],
    )
    save("latency", found)


if __name__ == "__main__":
    main()
