"""Peers of Structured Streaming: the same count and sum per key, batch by batch."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from benchmarks.common import Window

STATE = "n bigint, total double"
# Peers keep state where it survives and scales, as Spark's documentation advises.
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def batches_of(
    columns: list[str],
    rows: int,
    window: Window,
    start: Callable[[DataFrame], DataStreamWriter],
) -> list[Epoch]:
    """Run a streaming query over numbers ``n``; returns its steady batches."""
    from riverlock.spark.session import local_session

    spark = local_session(
        conf={"spark.sql.streaming.stateStore.providerClass": ROCKSDB}
    )
    tasks = spark.sparkContext.defaultParallelism
    spark.conf.set("spark.sql.shuffle.partitions", tasks)
    numbers = spark.readStream.format("rate-micro-batch")
    source = numbers.option("rowsPerBatch", rows).option("numPartitions", tasks).load()
    records = source.withColumnRenamed("value", "n").selectExpr(*columns)
    with tempfile.TemporaryDirectory() as place:
        checkpoint = str(Path(place, "checkpoint"))
        query = start(records).option("checkpointLocation", checkpoint).start()
        found: dict[int, Epoch] = {}
        began = time.monotonic()
        pause = threading.Event()
        while not window.is_over(began, len(found)):
            pause.wait(0.2)
            if query.exception():
                raise query.exception()  # type: ignore[misc]
            for progress in query.recentProgress:
                if progress["numInputRows"]:
                    seconds = progress["durationMs"]["triggerExecution"] / 1000
                    found[progress["batchId"]] = Epoch(seconds, rows)
                    window.note(began, len(found))
        query.stop()
    return window.steady([found[b] for b in sorted(found)])


def to_nowhere(frame: DataFrame, mode: str = "update") -> DataStreamWriter:
    """Write to the sink that does nothing."""
    return frame.writeStream.format("noop").outputMode(mode)


def _processor(fold: Callable[[Any, int, float], tuple[int, float]]) -> Any:
    """Return a processor that keeps what ``fold`` makes of a key's rows."""
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    class Running(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getValueState("state", STATE)

        def handleInputRows(  # noqa: N802 - PySpark's spelling
            self,
            key: Any,
            rows: Any,
            timerValues: Any,  # noqa: N803
        ) -> Any:
            self._state.update(fold(rows, *(self._state.get() or (0, 0.0))))
            return iter(())

        def close(self) -> None:
            pass

    return Running()


def transform_with_state(records: DataFrame) -> DataFrame:
    def fold(rows: Any, n: int, total: float) -> tuple[int, float]:
        for row in rows:
            n += 1
            total += row.amount
        return n, total

    return records.groupBy("k").transformWithState(
        _processor(fold), "k bigint", outputMode="Update", timeMode="None"
    )


def transform_with_state_in_pandas(records: DataFrame) -> DataFrame:
    def fold(frames: Any, n: int, total: float) -> tuple[int, float]:
        for frame in frames:
            n += len(frame)
            total += float(frame["amount"].sum())
        return n, total

    return records.groupBy("k").transformWithStateInPandas(
        _processor(fold), "k bigint", outputMode="Update", timeMode="None"
    )


def apply_in_pandas_with_state(records: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

    def running(key: Any, frames: Any, state: GroupState) -> Iterator[Any]:
        n, total = state.get if state.exists else (0, 0.0)
        for frame in frames:
            n += len(frame)
            total += float(frame["amount"].sum())
        state.update((n, total))
        return iter(())

    return records.groupBy("k").applyInPandasWithState(
        running, "k bigint", STATE, "update", GroupStateTimeout.NoTimeout
    )


def native(records: DataFrame) -> DataFrame:
    """Spark's own aggregate, in the JVM: no Python at all."""
    return records.groupBy("k").agg({"*": "count", "amount": "sum"})
