"""A table as a source on Spark: tasks share its rows, and event time ends with it."""

from __future__ import annotations

import logging
import sqlite3
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.servers.postgres import PASSWORD, Postgres
from tests.servers.proxy import CuttingProxy

import riverlock as rl
from riverlock.connectors.databases.reading.reader import SqlReader
from riverlock.coordinator.restart import FixedDelay
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark
ROWS = 23_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_rows_of_a_table_are_counted_once_over_two_runs(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    table = f"orders_{uuid.uuid4().hex[:8]}"
    postgres.query(
        f"CREATE TABLE {table} AS SELECT n AS id, 'u' || n % 7 AS who,"
        " '2026-01-01 00:00Z'::timestamptz + n * interval '1 second' AS at"
        f" FROM generate_series(1, {ROWS}) n"
    )
    postgres.query(f"CREATE UNIQUE INDEX ON {table} (id)")
    sinks = {"raw": rl.sinks.memory(), "hourly": rl.sinks.memory()}

    def run(*, rows: int) -> None:
        flow = rl.Flow("orders")
        orders = flow.read(
            rl.sources.sql(postgres.url(), table=table, column="id"), uid="orders"
        ).event_time("at", delay="0 seconds")
        orders.select("id", "who").write(sinks["raw"], uid="raw")
        orders.key_by("who").window(rl.tumbling("1 hour")).agg(n="count(*)").write(
            sinks["hourly"], uid="hourly"
        )
        flow.run(
            str(tmp_path / "store"),
            spark=spark,
            available_now=True,
            max_rows_per_epoch=rows,
        )

    run(rows=12_000)  # two tasks each
    postgres.query(
        f"INSERT INTO {table} SELECT n, 'u' || n % 7,"
        " '2026-01-01 00:00Z'::timestamptz + n * interval '1 second'"
        f" FROM generate_series({ROWS + 1}, {ROWS + 2000}) n"
    )
    run(rows=12_000)

    everything = range(1, ROWS + 2001)
    assert sorted(sinks["raw"].rows()) == [(n, f"u{n % 7}") for n in everything]
    hours = (ROWS + 2000) // 3600  # those that are over
    expected = Counter((n // 3600, f"u{n % 7}") for n in everything)
    found = {
        ((begin - BEGIN) // timedelta(hours=1), who): n
        for who, begin, _, n in sinks["hourly"].rows()
    }
    assert found == {k: n for k, n in expected.items() if k[0] < hours}
    stored = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert stored
    assert not [p for p in stored if PASSWORD.encode() in p.read_bytes()]


class Heard(logging.Handler):
    """Waits for a word of the log."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word, self.event = word, threading.Event()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        if self._word in self.texts[-1]:
            self.event.set()


def test_a_start_while_the_database_is_away_waits_for_it(
    spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    table = f"orders_{uuid.uuid4().hex[:8]}"
    postgres.query(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    postgres.query(f"INSERT INTO {table} VALUES (7)")
    proxy = CuttingProxy(postgres.socket, is_shut=True)
    flow, out = rl.Flow("orders"), rl.sinks.memory()
    url = postgres.url(proxy.port)
    flow.read(rl.sources.sql(url, table=table, column="id"), uid="orders").write(out)
    heard = Heard("waiting for source 'orders': the run begins when it answers")
    logging.getLogger("riverlock").addHandler(heard)

    try:
        with ThreadPoolExecutor(1) as beside:
            store = str(tmp_path / "store")
            done = beside.submit(flow.run, store, spark=spark, available_now=True)
            try:
                assert heard.event.wait(60)
                # Whoever waits is announced, and owns nothing yet.
                catalog = Catalog(open_storage(store))
                assert catalog.newest_run() is None
                assert not catalog.storage.exists(FLOW)
            finally:
                proxy.open()
            done.result(60)
    finally:
        logging.getLogger("riverlock").removeHandler(heard)
        proxy.close()

    assert out.rows() == [(7,)]
    assert PASSWORD not in str(heard.texts)


def test_a_range_that_changes_before_it_is_read_is_planned_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.db"
    table = "CREATE TABLE t (id INTEGER, at INTEGER PRIMARY KEY)"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(table)
        database.executemany("INSERT INTO t VALUES (?, ?)", [(n, n) for n in range(9)])
    pieces, times = SqlReader.pieces, []

    def changed(reader: SqlReader, start: Any, end: Any, tasks: int) -> Any:
        times.append(end)
        with closing(sqlite3.connect(file)) as database, database:
            # As a writer does that notes when a row was changed.
            database.execute("UPDATE t SET at = 20 WHERE id = 4")
        return pieces(reader, start, end, tasks)

    monkeypatch.setattr(SqlReader, "pieces", changed)
    sink = rl.sinks.memory()
    flow = rl.Flow("changed")
    flow.read(
        rl.sources.sql(f"sqlite:///{file}", table="t", column="at"), uid="t"
    ).write(sink, uid="out")
    flow.run(
        str(tmp_path / "store"),
        spark=spark,
        available_now=True,
        restart=FixedDelay(delay_us=1000, attempts=2),
    )

    expected = [(n, n) for n in range(9) if n != 4]
    assert [row for row in sorted(sink.rows()) if row[0] != 4] == expected
    assert len(times) >= 2
