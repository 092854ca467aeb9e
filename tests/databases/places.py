"""Each database, seen by a reader."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pymysql
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres

_TOO_YOUNG = 1412


class Place(Protocol):
    """A new and empty schema of a database."""

    schema: str | None

    @property
    def url(self) -> str: ...

    def snapshot(self, *queries: str) -> list[list[Any]]:
        """Run queries on one consistent view; ``{}`` stands for the schema."""
        ...

    def tables(self) -> set[str]: ...


@dataclass
class SqlitePlace:
    folder: Path
    schema: str | None = None

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/out.db"

    def snapshot(self, *queries: str) -> list[list[Any]]:
        path = self.folder / "out.db"
        with closing(sqlite3.connect(path, timeout=60)) as database:
            database.isolation_level = None
            database.execute("BEGIN")
            return [database.execute(q.replace("{}", "")).fetchall() for q in queries]

    def tables(self) -> set[str]:
        ((*found,),) = [self.snapshot("SELECT name FROM sqlite_master")[0]]
        return {n for (n,) in found if not n.startswith("sqlite_")}


@dataclass
class ServerPlace:
    server: Postgres | Mariadb
    begin: str
    schema: str | None = field(default_factory=lambda: f"s{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.server.query(f"CREATE SCHEMA {self.schema}")

    @property
    def url(self) -> str:
        return self.server.url()

    def snapshot(self, *queries: str) -> list[list[Any]]:
        with closing(self.server.connect()) as connection:
            while True:
                cursor = connection.cursor()
                cursor.execute(self.begin)
                try:
                    return [self._rows(cursor, q) for q in queries]
                except pymysql.err.OperationalError as error:
                    # MariaDB asks to begin anew if a table is as young as the view.
                    if error.args[0] != _TOO_YOUNG:
                        raise

    def _rows(self, cursor: Any, query: str) -> list[Any]:
        cursor.execute(query.replace("{}", f"{self.schema}."))
        return list(cursor.fetchall())

    def tables(self) -> set[str]:
        found: Iterable[Any] = self.server.query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s",
            self.schema,
        )
        return {n for (n,) in found}


def postgres_place(server: Postgres) -> Place:
    return ServerPlace(server, "BEGIN ISOLATION LEVEL REPEATABLE READ")


def mariadb_place(server: Mariadb) -> Place:
    return ServerPlace(server, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
