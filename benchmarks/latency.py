"""From the creation of an event to its result in the sink, p50 and p99.

    python -m benchmarks.latency [--paces 1000 20000] [--execution jobs continuous]

A process drops a file of new events ten times a second; both engines read that folder,
keep count and sum per key, and give a row for each event. Ours counts as visible when
its epoch is committed and the sink has it; the peer's when ``foreachBatch`` has it,
which is before its batch is committed.

Both work off what came while they started, then so many seconds of events are measured.
An event that has not come out a while after counts as one that takes for ever: an
engine that falls behind does not look better for what it has not done.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import harness
from benchmarks.common import save, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHEMA = "k bigint, amount double, created bigint"
KEYS = 10_000
TICK = 0.1
STARTING, PATIENCE, STOPPING = 120.0, 10.0, 30.0


def feed(folder: Path, pace: int) -> None:
    """Write files of the events that were created since the last one, for ever."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(7)
    rows, number = int(pace * TICK), 0
    due = time.time()
    while True:
        time.sleep(max(0.0, due - time.time()))
        created = (due - TICK + np.arange(rows) * TICK / rows) * 1e6
        table = pa.table(
            {
                "k": chance.integers(0, KEYS, rows),
                "amount": chance.random(rows),
                "created": created.astype(np.int64),
            }
        )
        hidden = folder / f".{number}.tmp"
        pq.write_table(table, hidden)
        hidden.rename(folder / f"{number:08d}.parquet")
        number += 1
        due += TICK


@contextmanager
def feeding(folder: Path, pace: int) -> Iterator[None]:
    """Feed a folder from a process of its own, so that engines do not slow it down."""
    command = [sys.executable, "-m", "benchmarks.latency", "--feed", str(folder)]
    with subprocess.Popen([*command, "--paces", str(pace)]) as feeder:
        try:
            yield
        finally:
            feeder.kill()


class Clock:
    """Notes how old events are when their rows arrive.

    The warm-up begins with the first row: how long an engine takes to start depends on
    the machine, and is no latency.
    """

    def __init__(self, warm_up: float, seconds: float, pace: int) -> None:
        self._warm_up, self._seconds = warm_up, seconds
        # One less: where the first and last fall is a matter of rounding.
        self._expected = int(seconds * pace) - 1
        self._missing = self._expected
        self._ages: list[np.ndarray] = []
        self._first_us = self._end_us = 0.0
        self._begun, self._over = threading.Event(), threading.Event()

    def note(self, created: Any) -> None:
        """Take note that the rows of these events are visible now."""
        now_us = time.time() * 1e6
        if not self._begun.is_set():
            self._first_us = now_us + self._warm_up * 1e6
            self._end_us = self._first_us + self._seconds * 1e6
            self._begun.set()
        times = np.asarray(created, dtype=np.int64)
        measured = times[(times >= self._first_us) & (times < self._end_us)]
        self._ages.append((now_us - measured) / 1e6)
        self._missing -= len(measured)
        if self._missing <= 0:
            self._over.set()

    def wait(self) -> None:
        """Wait until all measured events are there, or will not come in time."""
        assert self._begun.wait(STARTING), "no row came out"
        left = self._end_us / 1e6 + PATIENCE - time.time()
        self._over.wait(max(0.0, left))

    def result(self) -> dict[str, Any]:
        """Return p50 and p99, None if so many did not come, and the share that did."""
        missing = np.full(max(self._missing, 0), np.inf)
        ages = np.sort(np.concatenate([*self._ages, missing]))
        # Of the ages themselves: between two of them there may be infinity.
        p50, p99 = (float(ages[int(q * (len(ages) - 1))]) for q in (0.5, 0.99))
        return {
            "p50": p50 if np.isfinite(p50) else None,
            "p99": p99 if np.isfinite(p99) else None,
            "came": 1 - len(missing) / self._expected,
        }


def riverlock(folder: Path, clock: Clock, execution: Any = "jobs") -> None:
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
    stream = flow.read(source, uid="in").key_by("k").process(Running(), uid="running")
    stream.write(out, uid="out")

    def see(status: Any) -> None:
        # Told after the commit of all sinks; what was seen is let go.
        if rows := out.rows():
            clock.note([row[3] for row in rows])
        out.written.clear()

    with tempfile.TemporaryDirectory() as store:
        handle = flow.start(store, on_status=see, execution=execution)
        clock.wait()
        handle.stop()


def structured(folder: Path, clock: Clock) -> None:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from benchmarks.streaming import ROCKSDB, STATE
    from riverlock.spark.session import local_session

    class Running(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("state", STATE)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            n, total = self._state.get() or (0, 0.0)
            for row in rows:
                n += 1
                total += row.amount
                yield Row(k=row.k, n=n, total=total, created=row.created)
            self._state.update((n, total))

        def close(self) -> None:
            pass

    spark = local_session(
        conf={"spark.sql.streaming.stateStore.providerClass": ROCKSDB}
    )
    spark.conf.set(
        "spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism
    )
    events = spark.readStream.schema(SCHEMA).parquet(str(folder))
    made = events.groupBy("k").transformWithState(
        Running(),
        "k bigint, n bigint, total double, created bigint",
        outputMode="Update",
        timeMode="None",
    )

    def each(frame: Any, number: int) -> None:
        clock.note(frame.toPandas()["created"])

    with tempfile.TemporaryDirectory() as place:
        writer = made.writeStream.outputMode("update").foreachBatch(each)
        query = writer.option("checkpointLocation", place).start()
        clock.wait()
        query.stop()


PEERS = {"transformWithState": structured}
OURS: dict[str, Callable[[Path, Clock], None]] = {
    "riverlock": riverlock,
    "riverlock, continuous": partial(riverlock, execution="continuous"),
}
ENGINES = {**OURS, **PEERS}
EXECUTIONS = dict(zip(("jobs", "continuous"), OURS, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paces", type=int, nargs="+", default=[1_000, 20_000])
    parser.add_argument(
        "--execution",
        choices=EXECUTIONS,
        nargs="+",
        default=["jobs"],
        help="which of our engines",
    )
    parser.add_argument(
        "--warm-up", type=float, default=40, help="seconds after the first row"
    )
    parser.add_argument("--seconds", type=float, default=20, help="measured")
    parser.add_argument("--only", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--feed", type=Path, help=argparse.SUPPRESS)
    harness.add_options(parser, PEERS)
    chosen = parser.parse_args()
    if chosen.feed:
        feed(chosen.feed, chosen.paces[0])
        return
    if chosen.only:
        print(json.dumps(measured(chosen)))
        return
    given = ["--warm-up", str(chosen.warm_up), "--seconds", str(chosen.seconds)]
    most = STARTING + chosen.warm_up + chosen.seconds + PATIENCE + STOPPING
    contenders = [
        harness.Contender(
            f"{name}, {pace:,}/s",
            ("--only", name, "--paces", str(pace), *given),
            most,
            peer=name if name in PEERS else None,
        )
        for pace in chosen.paces
        for name in (*(EXECUTIONS[e] for e in chosen.execution), *PEERS)
    ]
    found = harness.measure("benchmarks.latency", contenders, _line, chosen)
    shown = {name: result for name, (result,) in found.items()}
    show(
        "seconds from an event to its committed row",
        ["", "p50", "p99", "came"],
        [
            [name, _shown(each["p50"]), _shown(each["p99"]), f"{each['came']:.0%}"]
            for name, each in shown.items()
        ],
    )
    save("latency", {"engines": shown, **vars(chosen)})


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run one engine at one pace."""
    (pace,) = chosen.paces
    with tempfile.TemporaryDirectory() as place, feeding(Path(place), pace):
        clock = Clock(chosen.warm_up, chosen.seconds, pace)
        ENGINES[chosen.only](Path(place), clock)
    return clock.result()


def _line(result: dict[str, Any]) -> str:
    p50, p99 = _shown(result["p50"]), _shown(result["p99"])
    return f"p50 {p50}, p99 {p99}, {result['came']:.0%} came"


def _shown(seconds: float | None) -> str:
    return "too late" if seconds is None else f"{seconds:.2f}"


if __name__ == "__main__":
    main()
