"""Upserts into PostgreSQL: ours, ``foreachBatch`` with executemany, and bare COPY.

    python -m benchmarks.sql_sink [--rows 500000] [--epochs 8] [--warm-up 40]

The server is started from the wheel that the tests use, with ``fsync`` on: all three
are durable when their clock stops. All write the same rows into tables with the same
primary key; COPY cannot replace rows, so each part has keys of its own. Ours and
``foreachBatch`` are measured from commit to commit, with making the rows, planning and
log of progress; COPY from rows that lie in memory as Arrow, encoded as our sink does.
The first epochs, which start workers and compile plans, do not count; before them, the
same work fills tables that are dropped, until Spark's virtual machine has compiled its
own code. Epochs are as large as
backlogs make them: small ones would measure what an epoch costs (``floor``). What the
server has not written yet of one contender's rows, it writes before the next begins.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import statistics
import sys
import tempfile
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.csv as csv

from benchmarks import harness
from benchmarks.common import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, Row

COLUMNS = {
    "k": "id",
    "name": "concat('customer-', id % 1000)",
    "amount": "cast(id % 9973 as double) / 7",
    "at": "timestamp_seconds(1700000000 + id % 86400)",
}
TABLE = (
    "CREATE TABLE {} (k bigint PRIMARY KEY, name text, amount double precision,"
    " at timestamptz)"
)
WARM_UP = 3  # epochs
UPSERT = (
    "INSERT INTO {} VALUES (%s, %s, %s, %s) ON CONFLICT (k) DO UPDATE"
    " SET name = excluded.name, amount = excluded.amount, at = excluded.at"
)


class Server(NamedTuple):
    """The server of the benchmark, as its contenders see it."""

    url: str

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def query(self, sql: str) -> list[Any]:
        with self.connect() as connection:
            cursor = connection.execute(sql.encode())
            return [] if cursor.description is None else cursor.fetchall()


def ours(server: Server, rows: int, epochs: int, warm_up: float) -> list[float]:
    """Return the seconds of each epoch, commit and staging included."""
    until = time.monotonic() + warm_up
    while time.monotonic() < until:
        _upserted(server, "scratch_rows", rows, WARM_UP)
        server.query("DROP TABLE scratch_rows")
    server.query("CHECKPOINT")
    return _steps(_upserted(server, "our_rows", rows, epochs))


def _upserted(server: Server, table: str, rows: int, epochs: int) -> list[float]:
    """Fill a new table; returns when each epoch was committed."""
    import riverlock as rl

    server.query(TABLE.format(table))
    sink = rl.sinks.sql(server.url, table=table, how="upsert", key="k")
    flow = rl.Flow("upserts")
    source = rl.sources.generator(COLUMNS, rows=rows * epochs)
    flow.read(source, uid="rows").write(sink, uid="table")
    ends: list[float] = []

    def note(status: Any) -> None:
        if status.state == "running":
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as store:
        flow.run(
            store,
            available_now=True,
            epoch_target=None,
            max_rows_per_epoch=rows,
            on_status=note,
        )
    return ends[:epochs]


def executemany(server: Server, rows: int, epochs: int, warm_up: float) -> list[float]:
    """Do what most do in foreachBatch: each partition sends its rows."""
    until = time.monotonic() + warm_up
    while time.monotonic() < until:
        _sent(server.url, "scratch_rows", rows, WARM_UP)
        server.query("DROP TABLE scratch_rows")
    server.query("CHECKPOINT")
    return _steps(_sent(server.url, "executemany_rows", rows, epochs))


def _sent(url: str, table: str, rows: int, epochs: int) -> list[float]:
    """Fill a new table by foreachBatch; returns when each batch was written."""
    import riverlock as rl

    Server(url).query(TABLE.format(table))
    statement = UPSERT.format(table).encode()

    def send(part: Iterable[Row]) -> None:
        import psycopg

        with closing(psycopg.connect(url)) as connection, connection.cursor() as cursor:
            cursor.executemany(statement, [tuple(row) for row in part])
            connection.commit()

    ends: list[float] = []

    def write(batch: DataFrame, _: int) -> None:
        if len(ends) < epochs:
            batch.foreachPartition(send)
            ends.append(time.perf_counter())

    spark = rl.spark_session()
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
    ids = numbers.load().selectExpr("value AS id")
    frame = ids.selectExpr(*(f"{text} AS {name}" for name, text in COLUMNS.items()))
    with tempfile.TemporaryDirectory() as place:
        query = (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", place)
            .start()
        )
        while len(ends) < epochs and query.exception() is None:
            time.sleep(0.05)
        query.stop()
    return ends


def copy(server: Server, rows: int, epochs: int, warm_up: float) -> list[float]:
    """Send the rows as they lie in memory, with one statement per part."""
    import riverlock as rl

    server.query(TABLE.format("copied_rows"))
    spark, found = rl.spark_session(), []
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    for number in range(epochs):
        ids = spark.range(number * rows, (number + 1) * rows, 1)
        frame = ids.selectExpr(*(f"{text} AS {name}" for name, text in COLUMNS.items()))
        table: pa.Table = frame.toArrow()
        began = time.perf_counter()
        # With a time zone, Arrow takes 20 times as long to write them.
        times = table["at"].cast(pa.timestamp("us"))
        plain = table.set_column(table.schema.get_field_index("at"), "at", times)
        with (
            closing(server.connect()) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET TimeZone = 'UTC'")
            with cursor.copy("COPY copied_rows FROM STDIN (FORMAT csv)") as into:
                for batch in plain.to_batches(max_chunksize=65_536):
                    sink = io.BytesIO()
                    csv.write_csv(batch, sink, options)
                    into.write(sink.getvalue())
        found.append(time.perf_counter() - began)
    return found[WARM_UP:]


def _steps(ends: list[float]) -> list[float]:
    """Return what each epoch took that is not for warming up."""
    return [b - a for a, b in itertools.pairwise(ends[WARM_UP - 1 :])]


CONTENDERS: dict[str, Callable[[Server, int, int, float], list[float]]] = {
    "riverlock": ours,
    "executemany": executemany,
    "copy": copy,
}
TABLES = {
    "riverlock": "our_rows",
    "executemany": "executemany_rows",
    "copy": "copied_rows",
}
# What a contender may take at most.
BESIDE_SECONDS, LEAST_RATE = 90.0, 5_000


def rate(chosen: argparse.Namespace) -> float:
    """Return rows per second of one contender."""
    server = Server(chosen.url)
    server.query("CHECKPOINT")
    contend = CONTENDERS[chosen.only]
    took = contend(server, chosen.rows, chosen.epochs, chosen.warm_up)
    return float(chosen.rows / statistics.median(took))


def main() -> None:
    from tests.servers.postgres import Postgres

    mine, *peers = CONTENDERS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="of one epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--warm-up", type=float, default=40, help="seconds, on Spark")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    harness.add_options(parser, peers)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(rate(chosen)))
        return
    rows = chosen.rows * (chosen.epochs + WARM_UP)
    most = BESIDE_SECONDS + chosen.warm_up + rows / LEAST_RATE
    server = Postgres(is_durable=True)
    try:
        server.start()
        given = [*sys.argv[1:], "--url", server.url(), "--only"]
        contenders = [
            harness.Contender(
                name, [*given, name], most, peer=None if name == mine else name
            )
            for name in CONTENDERS
        ]
        found = harness.measure(
            "benchmarks.sql_sink", contenders, "{:,.0f} rows/s".format, chosen
        )
        sums = [
            server.query(
                f"SELECT count(*), sum(k), sum(amount::numeric) FROM {TABLES[name]}"  # noqa: S608
            )
            for name in found
        ]
        assert all(each == sums[0] for each in sums), sums
    finally:
        server.close()
    speeds = {name: speed for name, (speed,) in found.items()}
    for peer in speeds:
        if peer != mine and mine in speeds:
            print(f"ours is {speeds[mine] / speeds[peer]:.2f} x {peer}")
    save("sql_sink", {**speeds, "rows": chosen.rows, "epochs": chosen.epochs})


if __name__ == "__main__":
    main()
