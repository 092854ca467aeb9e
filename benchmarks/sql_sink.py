"""Upserts into PostgreSQL: ours, ``foreachBatch`` with executemany, and bare COPY.

    python -m benchmarks.sql_sink [--rows 500000] [--epochs 8] [--warm-up 40]

The server is started from the wheel that the tests use, with ``fsync`` on: all three
are durable when their clock stops. All write the same rows into tables with the same
primary key; COPY cannot replace rows, so each part has keys of its own. Ours and
``foreachBatch`` are measured from commit to commit, with making the rows, planning and
log of progress; COPY from rows that lie in memory as Arrow, encoded as our sink does.
The first epochs, which start workers and compile plans, do not count; before ours, the
same flow fills tables that are dropped, until Spark's virtual machine has compiled its
own code (``foreachBatch`` comes after it, on the same one). Epochs are as large as
backlogs make them: small ones would measure what an epoch costs (``floor``). What the
server has not written yet of one contender's rows, it writes before the next begins.
"""

from __future__ import annotations

import argparse
import io
import itertools
import statistics
import tempfile
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as csv

from benchmarks.common import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, Row
    from tests.servers.postgres import Postgres

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
    "INSERT INTO executemany_rows VALUES (%s, %s, %s, %s) ON CONFLICT (k) DO UPDATE"
    " SET name = excluded.name, amount = excluded.amount, at = excluded.at"
)


def ours(server: Postgres, rows: int, epochs: int, warm_up: float) -> list[float]:
    """Return the seconds of each epoch, commit and staging included."""
    until = time.monotonic() + warm_up
    while time.monotonic() < until:
        _upserted(server, "scratch_rows", rows, WARM_UP)
        server.query("DROP TABLE scratch_rows")
    server.query("CHECKPOINT")
    return _steps(_upserted(server, "our_rows", rows, epochs))


def _upserted(server: Postgres, table: str, rows: int, epochs: int) -> list[float]:
    """Fill a new table; returns when each epoch was committed."""
    import riverlock as rl

    server.query(TABLE.format(table))
    sink = rl.sinks.sql(server.url(), table=table, mode="upsert", key="k")
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


def executemany(server: Postgres, rows: int, epochs: int) -> list[float]:
    """Do what most do in foreachBatch: each partition sends its rows."""
    import riverlock as rl

    server.query(TABLE.format("executemany_rows"))
    where: dict[str, Any] = {
        "host": str(server.folder),
        "user": "flow",
        "password": _password(),
        "dbname": "postgres",
    }

    def send(part: Iterable[Row]) -> None:
        import psycopg

        with (
            closing(psycopg.connect(**where)) as connection,
            connection.cursor() as cursor,
        ):
            cursor.executemany(UPSERT, [tuple(row) for row in part])
            connection.commit()

    ends: list[float] = []

    def write(batch: DataFrame, _: int) -> None:
        if len(ends) < epochs:
            batch.foreachPartition(send)
            ends.append(time.perf_counter())

    spark = rl.session()
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
    return _steps(ends)


def copy(server: Postgres, rows: int, epochs: int) -> list[float]:
    """Send the rows as they lie in memory, with one statement per part."""
    import riverlock as rl

    server.query(TABLE.format("copied_rows"))
    spark, found = rl.session(), []
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


def _password() -> str:
    from tests.servers.postgres import PASSWORD

    return PASSWORD


def main() -> None:
    from tests.servers.postgres import Postgres

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="of one epoch")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--warm-up", type=float, default=40, help="seconds, of ours")
    chosen = parser.parse_args()
    server = Postgres(is_durable=True)
    try:
        server.start()
        works: dict[str, Callable[[Postgres, int, int], list[float]]] = {
            "ours": partial(ours, warm_up=chosen.warm_up),
            "executemany": executemany,
            "copy": copy,
        }
        speeds = {}
        for name, work in works.items():
            server.query("CHECKPOINT")
            took = work(server, chosen.rows, chosen.epochs)
            speeds[name] = chosen.rows / statistics.median(took)
            print(f"{name:>12}: {speeds[name]:>12,.0f} rows/s", flush=True)
        tables = ("our_rows", "executemany_rows", "copied_rows")
        sums = [
            server.query(f"SELECT count(*), sum(k), sum(amount::numeric) FROM {t}")  # noqa: S608
            for t in tables
        ]
        assert sums[0] == sums[1] == sums[2], sums
    finally:
        server.close()
    for peer in ("executemany", "copy"):
        print(f"ours is {speeds['ours'] / speeds[peer]:.2f} x {peer}")
    save("sql_sink", {**speeds, "rows": chosen.rows, "epochs": chosen.epochs})


if __name__ == "__main__":
    main()
