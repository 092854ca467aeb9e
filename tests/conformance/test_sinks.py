"""Every sink keeps the promises of the suite that is shipped."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from tests.servers.mariadb import PASSWORD as MARIADB_PASSWORD
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import PASSWORD as PG_PASSWORD
from tests.servers.postgres import Postgres

import riverlock as rl
from riverlock.sinks.base import Sink
from riverlock.sinks.databases.sink import SqlSink
from riverlock.testing import SinkConformance


class TestFiles(SinkConformance):
    def make_sink(self, folder: Path) -> Sink:
        return rl.sinks.files(str(folder / "out"), format="json")

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        assert isinstance(sink, rl.sinks.FileSink)
        for path in Path(sink.path).glob("epoch=*/*.json"):
            for line in path.read_text().splitlines():
                yield tuple(json.loads(line).values())

    def leftovers(self, sink: Sink) -> Iterable[str]:
        assert isinstance(sink, rl.sinks.FileSink)
        hidden = Path(sink.path, "_riverlock")
        for place in ("staged", "building"):
            yield from (str(p) for p in (hidden / place).rglob("*") if p.is_file())


class TestSqlite(SinkConformance):
    mode = "append"

    def make_sink(self, folder: Path) -> Sink:
        url = f"sqlite:///{folder}/out.db"
        key = ["id"] if self.mode == "upsert" else []
        return rl.sinks.sql(url, table="out", mode=self.mode, key=key, create=True)

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        assert isinstance(sink, SqlSink)
        with closing(sqlite3.connect(sink.address.database, timeout=60)) as database:
            return database.execute("SELECT id, name, epoch FROM out").fetchall()


class TestSqliteUpsert(TestSqlite):
    mode = "upsert"


class TestPostgres(SinkConformance):
    mode = "upsert"
    secret = PG_PASSWORD

    @pytest.fixture(autouse=True)
    def _server(self, postgres: Postgres) -> None:
        self.server = postgres

    def make_sink(self, folder: Path) -> Sink:
        self.schema = f"s{uuid.uuid4().hex[:8]}"
        self.server.query(f"CREATE SCHEMA {self.schema}")
        return rl.sinks.sql(
            self.server.url(),
            table=f"{self.schema}.out",
            mode=self.mode,
            key=["id"] if self.mode == "upsert" else [],
            create=True,
        )

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        return self.server.query(f"SELECT id, name, epoch FROM {self.schema}.out")

    def leftovers(self, sink: Sink) -> Iterable[str]:
        found = self.server.query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s",
            self.schema,
        )
        return sorted({n for (n,) in found} - {"out", "riverlock_epochs"})


class TestMariadb(TestPostgres):
    mode = "append"
    secret = MARIADB_PASSWORD

    @pytest.fixture(autouse=True)
    def _server(self, mariadb: Mariadb) -> None:
        self.server = mariadb  # type: ignore[assignment]
