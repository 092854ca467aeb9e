"""The program that chaos tests run, kill and run again.

One flow with everything that can be lost: values, a list, a map, event-time timers,
side outputs, an aggregate over a ledger, a sliding window, five file sinks. Its rows
are plain arithmetic on their number, so that ``oracle`` computes them without Spark and
without Riverlock.

``python -m tests.chaos.worker_flow --store S --out O`` exits 0 at the end of the input,
with the error's own exit code otherwise. It prints a line when it has claimed its run,
and one per epoch.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.unsynced import without_sync

import riverlock as rl
from riverlock.core.errors import RiverlockError
from riverlock.core.faults import DIRECTORY_VARIABLE, PLAN_VARIABLE

START_US = 1_700_000_000_000_000
STEP_US = 100_000
BUCKET_US = 10_000_000
PANE_US = 5_000_000
ACCOUNTS = 13
SEED = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the parent chooses; every field is an option of the command line."""

    store: str
    out: str
    rows: int = 4_000
    keys: int = 40
    hot: int = 0  # 1: nine rows of ten have one key
    key_groups: int = 16
    epoch_rows: int = 500
    parallelism: int = 2
    master: str = "local[2,4]"
    retain: int = 100_000
    grace: str = "10 minutes"
    pace: float = 0.0  # rows per second; 0: all at once
    available_now: int = 1
    speculation: int = 0
    slow_once: str = ""  # a file: who makes it is slow, once
    pause_ms: int = 0  # how long every task takes at least
    join: int = 0  # 1: each row is joined with the next one of its key
    working_dir: str = ""
    executor_timeout: str = "5 minutes"
    worker_faults: str = ""  # a plan for Python workers only; the driver has its own

    def arguments(self) -> list[str]:
        """Return the command line that says the same."""
        return [
            part
            for name, value in asdict(self).items()
            for part in (f"--{name.replace('_', '-')}", str(value))
        ]


class Track(rl.Process):
    """Refuses any gap, repeat or inversion in the sequence of a key."""

    output = "key string, seq long, total long, epoch long"
    expected = rl.Value("long", default=0)
    total = rl.Value("long", default=0)
    recent = rl.List("long")
    buckets = rl.Map("long", "long")
    windows = rl.SideOutput("key string, bucket long, total long")
    odd = rl.SideOutput("key string, seq long, value long")

    def __init__(self, slow_once: str, pause_ms: int) -> None:
        self.slow_once, self.pause_ms = slow_once, pause_ms

    def open(self) -> None:
        if self.pause_ms:
            time.sleep(self.pause_ms / 1000)
        if self.slow_once and _is_first(self.slow_once):
            time.sleep(15)

    def on_event(self, row: Any, ctx: Any) -> Any:
        if row.seq != self.expected:
            message = f"key {row.key}: expected {self.expected}, found {row.seq}"
            raise AssertionError(message)
        self.expected += 1
        self.total += row.value
        self.recent.replace([*self.recent, row.value][-5:])
        bucket = row.at_us // BUCKET_US
        if bucket not in self.buckets:
            self.buckets[bucket] = 0
            end = timedelta(microseconds=(bucket + 1) * BUCKET_US)
            ctx.set_timer(_EPOCH + end)
        self.buckets[bucket] += row.value
        if row.value % 50 == 0:
            ctx.emit(self.odd, (row.key, row.seq, row.value))
        yield row.key, row.seq, self.total, ctx.epoch

    def on_timer(self, at: datetime, ctx: Any) -> None:
        # A timer that fires twice does not find its bucket and raises.
        bucket = (at - _EPOCH) // timedelta(microseconds=BUCKET_US) - 1
        ctx.emit(self.windows, (ctx.key, bucket, self.buckets[bucket]))
        del self.buckets[bucket]


def _is_first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def columns(options: Options) -> dict[str, str]:
    """Return the generator's columns: arithmetic on the row's number."""
    if options.hot:
        rest = options.keys - 1
        key = f"if(id % 10 = 0, 1 + (id div 10) % {rest}, 0)"
        seq = f"if(id % 10 = 0, (id div 10) div {rest}, id - (id + 9) div 10)"
    else:
        key, seq = f"id % {options.keys}", f"id div {options.keys}"
    at_us = f"{START_US} + id * {STEP_US}"
    return {
        "key": f"concat('k', {key})",
        "seq": seq,
        "value": f"(id * 7919 + {SEED}) % 1009",
        "at": f"timestamp_micros({at_us})",
        "at_us": at_us,
        "source": f"id % {ACCOUNTS}",
        "target": f"(id * 31 + 7) % {ACCOUNTS}",
    }


def _postings(frame: Any) -> Any:
    """Turn each transfer into a debit and a credit."""
    from pyspark.sql import functions as F

    both = "array(struct(source as account, -value as amount),"
    both += " struct(target as account, value as amount))"
    frame = frame.withColumn("posting", F.explode(F.expr(both)))
    return frame.withColumns(
        {"account": F.col("posting.account"), "amount": F.col("posting.amount")}
    )


def build(options: Options) -> rl.Flow:
    """Return the flow."""
    flow = rl.Flow("chaos", key_groups=options.key_groups)
    source = rl.sources.generator(
        columns(options),
        rows=options.rows,
        rows_per_second=options.pace or None,
        bounded=True,
    )
    rows = flow.read(source, uid="rows").event_time("at")
    track = Track(options.slow_once, options.pause_ms)
    events = rows.key_by("key").process(track, uid="track")
    ledger = rows.transform(_postings).key_by("account")
    sliding = rows.key_by("key").window(rl.sliding("10 seconds", "5 seconds"))
    out = Path(options.out)
    for name, stream, kind in (
        ("events", events, "json"),
        ("windows", events.side("windows"), "parquet"),
        ("odd", events.side("odd"), "json"),
        (
            "ledger",
            ledger.agg(balance="sum(amount)", n="count(*)", uid="ledger"),
            "parquet",
        ),
        ("slides", sliding.agg(total="sum(value)", uid="slides"), "parquet"),
    ):
        stream.write(rl.sinks.files(str(out / name), format=kind), uid=f"to-{name}")
    if options.join:
        joined = _joined(rows, options)
        sink = rl.sinks.files(str(out / "joins"), format="parquet")
        joined.write(sink, uid="to-joins")
    return flow


def _joined(rows: Any, options: Options) -> Any:
    """Join rows with the next one of their key, if its value is even."""
    following = rows.where("value % 2 = 0").select("key as other", "seq as next")
    return (
        rows.select("key", "seq")
        .key_by("key")
        .join(
            following.key_by("other"),
            within=("1 microsecond", timedelta(microseconds=options.keys * STEP_US)),
            how="left",
            uid="joins",
        )
    )


def run(options: Options, **more: Any) -> Any:
    """Run the flow; prints what a parent waits for."""

    def show(status: Any) -> None:
        print(f"epoch {status.epoch} run {status.run}", flush=True)

    chosen = {
        "available_now": bool(options.available_now),
        "parallelism": options.parallelism,
        "max_rows_per_epoch": options.epoch_rows,
        "retain_epochs": options.retain,
        "grace": options.grace,
        "working_dir": options.working_dir or None,
        "executor_timeout": options.executor_timeout,
        "on_status": show,
        **more,
    }
    return build(options).run(options.store, **chosen)


def session(options: Options) -> Any:
    """Start Spark as quickly as it can be started."""
    conf = {
        "spark.driver.memory": "1g",
        # Workers would inherit the driver's plan; they have one of their own, or none.
        f"spark.executorEnv.{PLAN_VARIABLE}": options.worker_faults,
        f"spark.executorEnv.{DIRECTORY_VARIABLE}": os.environ.get(
            DIRECTORY_VARIABLE, ""
        ),
    }
    if options.speculation:
        conf |= {
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.multiplier": "1.5",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "100ms",
        }
    if options.master.startswith("spark:"):
        return _users_own(options.master, conf)
    return rl.spark_session("chaos", master=options.master, conf=conf)


def _users_own(master: str, conf: dict[str, str]) -> Any:
    """Start a session on a cluster with nothing of ours in it."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("chaos")
    own = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        # They start as fast as the driver: see tools/java_archive.py.
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    for name, value in {**conf, **own}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # A job waits for its first executor as long as it takes; a run may not.
    spark.range(1).count()
    return spark


def parse(argv: list[str]) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    kinds = {"str": str, "int": int, "float": float}
    for each in fields(Options):
        default = None if each.default is MISSING else each.default
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            type=kinds[str(each.type)],
            default=default,
            required=default is None,
        )
    return Options(**vars(parser.parse_args(argv)))


def main() -> int:
    without_sync()
    options = parse(sys.argv[1:])
    spark = session(options)
    print("session", flush=True)
    try:
        run(options, spark=spark)
    except RiverlockError as error:
        print(f"{error.code}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    print("done", flush=True)
    # The JVM ends with its own exit hooks, not by losing us.
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
