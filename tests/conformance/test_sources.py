"""Every source keeps the promises of the suite that is shipped."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from tests.servers.kafka import Topic, send
from tests.servers.mariadb import PASSWORD as MARIADB_PASSWORD
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import PASSWORD as PG_PASSWORD
from tests.servers.postgres import Postgres
from tools.kafka_server import KafkaServer

import riverlock as rl
from riverlock.connectors.base.source import Source
from riverlock.connectors.databases.source import Sql
from riverlock.sources import Files
from riverlock.testing import SourceConformance

Row = tuple[int, str]
COLUMNS = "id bigint, name string"


class OnSpark(SourceConformance):
    """On the session of this run; rows are numbered."""

    @pytest.fixture(autouse=True)
    def _session(self, spark: SparkSession) -> None:
        self.next = 0

    def new_rows(self, count: int) -> list[Row]:
        first, self.next = self.next, self.next + count
        return [(i, f"é'\\\"%s,{i}") for i in range(first, self.next)]


class TestFiles(OnSpark):
    limits_rows = False

    def make_source(self, folder: Path, *, bounded: bool) -> Source:
        (folder / "in").mkdir()
        return rl.sources.files(
            str(folder / "in"), format="json", schema=COLUMNS, bounded=bounded
        )

    def add_rows(self, source: Source, count: int) -> list[Row]:
        assert isinstance(source, Files)
        rows = self.new_rows(count)
        lines = [json.dumps({"id": i, "name": n}) for i, n in rows]
        hidden = Path(source.path, f".{uuid.uuid4().hex}.json")
        hidden.write_text("\n".join(lines))
        hidden.rename(hidden.with_name(hidden.name[1:]))
        return rows


class TestGenerator(OnSpark):
    def make_source(self, folder: Path, *, bounded: bool) -> Source:
        self.bounded = bounded
        return rl.sources.generator(
            {"id": "id", "name": "concat('n', id)"},
            rows_per_second=None if bounded else 1,
            rows=7 if bounded else None,
            bounded=bounded,
        )

    def add_rows(self, source: Source, count: int) -> list[Row]:
        self.clock.advance(f"{count} seconds")
        return [(i, f"n{i}") for i, _ in self.new_rows(count)]


class TestSqlite(OnSpark):
    definition = "id INTEGER PRIMARY KEY, name TEXT"
    column = "id"

    def make_source(self, folder: Path, *, bounded: bool) -> Source:
        url = f"sqlite:///{folder}/in.db"
        with closing(sqlite3.connect(f"{folder}/in.db")) as database:
            database.execute(f"CREATE TABLE things ({self.definition})")
        return rl.sources.sql(url, table="things", column=self.column, bounded=bounded)

    def add_rows(self, source: Source, count: int) -> list[Row]:
        assert isinstance(source, Sql)
        rows = self.new_rows(count)
        with closing(sqlite3.connect(source.address.database)) as database, database:
            database.executemany("INSERT INTO things VALUES (?, ?)", rows)
        return rows


class TestPostgres(OnSpark):
    secret = PG_PASSWORD
    delay: str | None = None

    @pytest.fixture(autouse=True)
    def _server(self, postgres: Postgres) -> None:
        self.server = postgres

    def make_source(self, folder: Path, *, bounded: bool) -> Source:
        self.table = f"in_{uuid.uuid4().hex[:8]}"
        self.server.query(
            f"CREATE TABLE {self.table} (id BIGINT PRIMARY KEY, name TEXT)"
        )
        return rl.sources.sql(
            self.server.url(),
            table=self.table,
            column="id",
            bounded=bounded,
            delay=self.delay,
        )

    def add_rows(self, source: Source, count: int) -> list[Row]:
        rows = self.new_rows(count)
        marks = ", ".join("(%s, %s)" for _ in rows)
        flat = [value for row in rows for value in row]
        self.server.query(f"INSERT INTO {self.table} VALUES {marks}", *flat)
        return rows


class TestMariadb(TestPostgres):
    secret = MARIADB_PASSWORD
    delay = "0 seconds"

    @pytest.fixture(autouse=True)
    def _server(self, mariadb: Mariadb) -> None:
        self.server = mariadb  # type: ignore[assignment]


class TestKafka(OnSpark):
    @pytest.fixture(autouse=True)
    def _broker(self, kafka: KafkaServer, topic: Topic) -> None:
        self.broker, self.make_topic = kafka, topic

    def make_source(self, folder: Path, *, bounded: bool) -> Source:
        self.topic = self.make_topic(2)
        return rl.sources.kafka(
            self.broker.servers,
            self.topic,
            value="json",
            schema=COLUMNS,
            bounded=bounded,
        )

    def add_rows(self, source: Source, count: int) -> list[Row]:
        rows = self.new_rows(count)
        for part in range(2):
            mine = [{"id": i, "name": name} for i, name in rows if i % 2 == part]
            bodies: list[Any] = [(None, json.dumps(row).encode()) for row in mine]
            if bodies:
                send(self.broker.servers, self.topic, bodies, partition=part)
        return rows


class LinesReader(SimpleDataSourceStreamReader):
    """A source of somebody else's: lines of a file, by number."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def initialOffset(self) -> dict[str, int]:
        return {"line": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Any], dict[str, int]]:
        end = {"line": len(self.path.read_text().splitlines())}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[Any]:
        lines = self.path.read_text().splitlines()[start["line"] : end["line"]]
        return iter([tuple(json.loads(line)) for line in lines])


class Lines(DataSource):
    def schema(self) -> str:
        return COLUMNS

    def simpleStreamReader(self, schema: Any) -> LinesReader:
        return LinesReader(self.options["path"])


class TestOwnSource(OnSpark):
    limits_rows = False
    can_be_bounded = False
    source_class: type[DataSource] = Lines

    def make_source(self, folder: Path, *, bounded: bool) -> Source:
        self.path = folder / "lines.txt"
        self.path.write_text("")
        return rl.sources.python(self.source_class, path=str(self.path))

    def add_rows(self, source: Source, count: int) -> list[Row]:
        rows = self.new_rows(count)
        with self.path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return rows


class OverlappingReader(LinesReader):
    """A mistake that the suite must find: the first row of a range is read twice."""

    def readBetweenOffsets(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[Any]:
        before = {"line": max(0, start["line"] - 1)}
        return super().readBetweenOffsets(before, end)


class GrowingReader(LinesReader):
    """Another mistake: a range has what is there when it is read."""

    def readBetweenOffsets(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[Any]:
        return super().readBetweenOffsets(start, {"line": 1_000_000})


@pytest.mark.parametrize(
    ("reader", "test"),
    [
        (OverlappingReader, "test_ranges_join_without_gap_or_overlap"),
        (GrowingReader, "test_a_range_can_be_read_again"),
    ],
)
def test_the_suite_finds_mistakes(
    spark: SparkSession, tmp_path: Path, reader: type[LinesReader], test: str
) -> None:
    class Wrong(Lines):
        def simpleStreamReader(self, schema: Any) -> LinesReader:
            return reader(self.options["path"])

    class Suite(TestOwnSource):
        source_class = Wrong
        next = 0

    with pytest.raises(AssertionError):
        getattr(Suite(), test)(tmp_path)
