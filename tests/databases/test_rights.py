"""What a role may not do is told by check and at the start, with what to grant."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from tests.databases.places import Place, mariadb_place, postgres_place
from tests.servers import mariadb as my_server
from tests.servers import postgres as pg_server
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import SinkUse
from riverlock.connectors.databases.committer import SqlCommitter
from riverlock.core.errors import InvalidConfigError
from riverlock.core.types import schema_of
from riverlock.storage import LocalStorage

EPOCHS = (
    "flow VARCHAR(64) NOT NULL, sink VARCHAR(255) NOT NULL, run BIGINT NOT NULL,"
    " epoch BIGINT, opened VARCHAR(160), decided VARCHAR(160), PRIMARY KEY (flow, sink)"
)
USE = SinkUse(uid="out", schema=schema_of("id bigint, n bigint"), replaces=False)


@dataclass
class Clerk:
    """A role that may do what it is granted, and a table for it."""

    server: Any
    place: Place
    login: str
    name: str

    def __post_init__(self) -> None:
        schema = self.place.schema
        for table, columns in (
            ("out", "id BIGINT PRIMARY KEY, n BIGINT"),
            ("riverlock_epochs", EPOCHS),
        ):
            self.server.query(f"CREATE TABLE {schema}.{table} ({columns})")
        self.grant("SELECT, INSERT, UPDATE", "riverlock_epochs")
        self.grant("SELECT, INSERT", "out")

    def grant(self, rights: str, table: str) -> None:
        self.server.query(
            f"GRANT {rights} ON {self.place.schema}.{table} TO {self.login}"
        )

    def committer(self, store: LocalStorage, **how: Any) -> SqlCommitter:
        url = self.server.url().replace("flow:", f"{self.name}:", 1)
        url = url.replace("/flow?", f"/{self.place.schema}?")
        table = f"{self.place.schema}.out"
        return rl.sinks.sql(url, table=table, **how).committer(USE, store)


@pytest.fixture
def postgres_clerk(postgres: Postgres) -> Clerk:
    name, place = f"r{uuid.uuid4().hex[:8]}", postgres_place(postgres)
    postgres.query(f"CREATE ROLE {name} LOGIN PASSWORD '{pg_server.PASSWORD}'")
    postgres.query(f"GRANT USAGE ON SCHEMA {place.schema} TO {name}")
    return Clerk(postgres, place, name, name)


@pytest.fixture
def mariadb_clerk(mariadb: Mariadb) -> Clerk:
    name, place = f"r{uuid.uuid4().hex[:8]}", mariadb_place(mariadb)
    mariadb.query(f"CREATE USER {name}@localhost IDENTIFIED BY '{my_server.PASSWORD}'")
    return Clerk(mariadb, place, f"{name}@localhost", name)


def test_postgres(postgres_clerk: Clerk, store: LocalStorage) -> None:
    clerk, owner = postgres_clerk, Owner(flow="f", sink="out", run=1)
    schema = clerk.place.schema
    may_not = (
        rf"right to create tables.*GRANT CREATE ON SCHEMA \"{schema}\" TO {clerk.name}"
    )

    with pytest.raises(InvalidConfigError, match=may_not):
        clerk.committer(store).probe()
    with pytest.raises(InvalidConfigError, match=may_not):
        clerk.committer(store).open(owner)

    clerk.server.query(f"GRANT CREATE ON SCHEMA {schema} TO {clerk.name}")
    clerk.committer(store).probe()
    clerk.committer(store).open(owner)
    _check_rights_of_the_table(clerk, store)
    assert clerk.place.tables() == {"out", "riverlock_epochs"}


def test_mariadb(mariadb_clerk: Clerk, store: LocalStorage) -> None:
    clerk, owner = mariadb_clerk, Owner(flow="f", sink="out", run=1)
    may_not = rf"right to create tables.*GRANT CREATE, .* ON `{clerk.place.schema}`\.\*"

    with pytest.raises(InvalidConfigError, match=may_not):
        clerk.committer(store).probe()
    with pytest.raises(InvalidConfigError, match=may_not):
        clerk.committer(store).open(owner)

    clerk.grant("SELECT, INSERT, CREATE, DROP", "*")
    clerk.committer(store).probe()
    clerk.committer(store).open(owner)
    _check_rights_of_the_table(clerk, store)
    assert clerk.place.tables() == {"out", "riverlock_epochs"}


def _check_rights_of_the_table(clerk: Clerk, store: LocalStorage) -> None:
    """Rows may be added by now, not replaced."""
    upsert = clerk.committer(store, how="upsert", key="id")
    with pytest.raises(InvalidConfigError, match=r"GRANT .*UPDATE.* ON .*out.* TO"):
        upsert.probe()
    clerk.grant("UPDATE", "out")
    upsert.probe()

    for how in ({"how": "replace"}, {"how": "upsert", "key": "id", "deletes": "d"}):
        with pytest.raises(InvalidConfigError, match=r"GRANT .*DELETE.* ON .*out.* TO"):
            clerk.committer(store, **how).probe()
    clerk.grant("DELETE", "out")
    clerk.committer(store, how="replace").probe()


def _check_table_of_an_older_version(clerk: Clerk, store: LocalStorage) -> None:
    """It lacks columns, which only its owner may add."""
    owner, epochs = Owner(flow="f", sink="out", run=1), "riverlock_epochs"
    table = f"{clerk.place.schema}.{epochs}"
    for column in ("opened", "decided"):
        clerk.server.query(f"ALTER TABLE {table} DROP COLUMN {column}")
    before = clerk.server.query(f"SELECT * FROM {table}")

    for start in (SqlCommitter.probe, lambda c: c.open(owner)):
        with pytest.raises(InvalidConfigError, match="right to add columns") as told:
            start(clerk.committer(store))
    assert clerk.server.query(f"SELECT * FROM {table}") == before

    assert told.value.hint is not None
    for statement in told.value.hint.partition("run: ")[2].split("; "):
        clerk.server.query(statement)
    clerk.committer(store).probe()
    clerk.committer(store).open(owner)


def test_postgres_table_of_an_older_version(
    postgres_clerk: Clerk, store: LocalStorage
) -> None:
    schema, name = postgres_clerk.place.schema, postgres_clerk.name
    postgres_clerk.server.query(f"GRANT CREATE ON SCHEMA {schema} TO {name}")
    _check_table_of_an_older_version(postgres_clerk, store)


def test_mariadb_table_of_an_older_version(
    mariadb_clerk: Clerk, store: LocalStorage
) -> None:
    mariadb_clerk.grant("SELECT, INSERT, CREATE, DROP", "*")
    _check_table_of_an_older_version(mariadb_clerk, store)
