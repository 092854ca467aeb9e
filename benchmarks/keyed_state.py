"""Running count and sum per key: a Process against Spark's transformWithState.

    python -m benchmarks.keyed_state [--keys 100000] [--rows 400000] [--epochs 8]

Both read numbers 0, 1, 2, ... (a generator, Spark's rate-micro-batch), derive the key
by the same hash, keep two values per key, write nothing out, and make every epoch or
batch durable. Records/s is the median over steady epochs: the first ones, in which
workers and JIT compiler start, are left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.common import in_child, median, save, show

AMOUNT = "cast(pmod(xxhash64(n, 1), 10000) as double) / 100"


def key(keys: int) -> str:
    return f"pmod(xxhash64(n), {keys})"


def riverlock(keys: int, rows: int, epochs: int) -> list[float]:
    """Return records/s of each epoch."""
    import riverlock as rl

    class Running(rl.Process):
        n = rl.Value("bigint", default=0)
        total = rl.Value("double", default=0.0)

        def on_event(self, e: Any, ctx: Any) -> None:
            self.n += 1
            self.total += e.amount

    flow = rl.Flow("bench")
    columns = {
        "k": key(keys).replace("(n", "(id"),
        "amount": AMOUNT.replace("(n", "(id"),
    }
    stream = flow.read(rl.sources.generator(columns, rows=rows * epochs))
    stream.key_by("k").process(Running(), uid="running")
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as store:
        flow.run(
            store,
            available_now=True,
            epoch_target=None,
            max_rows_per_epoch=rows,
            on_status=lambda s: (
                seconds.append(s.epoch_seconds) if s.state == "running" else None
            ),
        )
    return [rows / s for s in seconds]


def transform_with_state(keys: int, rows: int, epochs: int) -> list[float]:
    """Return records/s of each micro-batch."""
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    from riverlock.spark.session import local_session

    class Running(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getValueState("state", "n bigint, total double")

        def handleInputRows(  # noqa: N802 - PySpark's spelling
            self,
            key: Any,
            rows: Any,
            timerValues: Any,  # noqa: N803
        ) -> Any:
            n, total = self._state.get() or (0, 0.0)
            for row in rows:
                n += 1
                total += row.amount
            self._state.update((n, total))
            return iter(())

        def close(self) -> None:
            pass

    provider = (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
    spark = local_session(
        conf={"spark.sql.streaming.stateStore.providerClass": provider}
    )
    spark.conf.set(
        "spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism
    )
    numbers = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    )
    records = numbers.withColumnRenamed("value", "n").selectExpr(
        f"{key(keys)} as k", f"{AMOUNT} as amount"
    )
    counted = records.groupBy("k").transformWithState(
        Running(), "k bigint", outputMode="Update", timeMode="None"
    )
    with tempfile.TemporaryDirectory() as place:
        query = (
            counted.writeStream.format("noop")
            .option("checkpointLocation", str(Path(place, "checkpoint")))
            .outputMode("update")
            .start()
        )
        pause = threading.Event()
        while not query.lastProgress or query.lastProgress["batchId"] < epochs - 1:
            if query.exception():
                raise query.exception()  # type: ignore[misc]
            pause.wait(0.2)
        found = {
            p["batchId"]: p["numInputRows"]
            / (p["durationMs"]["triggerExecution"] / 1000)
            for p in query.recentProgress
            if p["numInputRows"]
        }
        query.stop()
    return [found[b] for b in sorted(found)]


CONTENDERS = {
    "riverlock": (riverlock, 3),
    "transformWithState": (transform_with_state, 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=400_000, help="records per epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--peer-epochs", type=int, default=3)
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        run, skipped = CONTENDERS[chosen.only]
        print(json.dumps(run(chosen.keys, chosen.rows, chosen.epochs)[skipped:]))
        return
    rates = {}
    for name in CONTENDERS:
        epochs = chosen.epochs if name == "riverlock" else chosen.peer_epochs
        steady = in_child(
            "benchmarks.keyed_state",
            *("--only", name, "--keys", str(chosen.keys)),
            *("--rows", str(chosen.rows), "--epochs", str(epochs)),
        )
        rates[name] = median(steady)
    ratio = rates["riverlock"] / rates["transformWithState"]
    show(
        f"count and sum, {chosen.keys:,} keys, {chosen.rows:,} records an epoch",
        ["", "records/s", "ratio"],
        [
            [n, f"{r:,.0f}", f"{r / rates['transformWithState']:.1f}"]
            for n, r in rates.items()
        ],
    )
    save("keyed_state", {"records_per_second": rates, "ratio": ratio, **vars(chosen)})


if __name__ == "__main__":
    main()
