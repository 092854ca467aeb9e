"""What tables hold, and what they refuse."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.databases.places import (
    Place,
    SqlitePlace,
    mariadb_place,
    postgres_place,
)
from tests.servers.postgres import Postgres

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.databases.address import parse_address
from riverlock.connectors.databases.committer import SqlCommitter
from riverlock.connectors.databases.dialect import Target
from riverlock.connectors.databases.postgres import PostgresDialect
from riverlock.connectors.databases.sink import SqlSink
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    InvalidConfigError,
    InvalidFlowError,
    SinkError,
    SinkUnavailableError,
)
from riverlock.core.types import schema_of
from riverlock.snapshot.format.records import SinkOutput
from riverlock.storage import LocalStorage

SERVERS: dict[str, Callable[[Any], Place]] = {
    "postgres": postgres_place,
    "mariadb": mariadb_place,
}
ALL = """
id bigint, flag boolean, tiny tinyint, small smallint, whole int, single float,
real double, money decimal(38,18), text string, raw binary, day date, at timestamp,
wall timestamp_ntz, tags array<string>, prices map<string,double>, `odd "name` int
"""
FIRST: dict[str, Any] = {
    "id": -(2**63),
    "flag": True,
    "tiny": -128,
    "small": -(2**15),
    "whole": -(2**31),
    "single": 0.5,
    "real": 0.1 + 0.2,
    "money": Decimal("12345678901234567890.123456789012345678"),
    "text": "é,\"'\\\n\t💧 ",
    "raw": bytes(range(256)),
    "day": date(1969, 7, 20),
    "at": datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC),
    "wall": datetime(2026, 3, 29, 2, 30, 0, 654321),  # noqa: DTZ001 - has no zone
    "tags": ["a", None, "\\"],
    "prices": [("x", 1.5)],
    'odd "name': 7,
}


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    return SERVERS[request.param](request.getfixturevalue(request.param))


class Table:
    """A sink used by hand: stage, then commit."""

    def __init__(self, place: Place, store: LocalStorage, columns: str, **how: Any):
        name = "out" if place.schema is None else f"{place.schema}.out"
        self.sink: SqlSink = rl.sinks.sql(place.url, table=name, **how)
        self.use = SinkUse(
            uid="out", schema=schema_of(columns), replaces=how.get("how") == "replace"
        )
        self.store, self.epoch = store, 0
        self.committer: SqlCommitter = self.sink.committer(self.use, store)

    def open(self, run: int = 1) -> Table:
        self.sink.stager(self.use)
        self.committer.open(Owner(flow="f", sink="out", run=run))
        return self

    def stage(self, *rows: dict[str, Any]) -> SinkOutput:
        table = pa.Table.from_pylist(list(rows), schema=self.use.schema.to_arrow())
        point = StagePoint(
            storage=self.store,
            folder="staged",
            epoch=self.epoch,
            attempt=uuid.uuid4().hex,
            flow="f",
        )
        tokens = self.sink.stager(self.use).stage(table, point)
        return SinkOutput(kind="sql", tokens=tuple(tokens), rows=len(rows))

    def write(self, *rows: dict[str, Any]) -> None:
        self.committer.commit(self.epoch, self.stage(*rows))
        self.epoch += 1


def test_values_come_back_as_they_were(place: Place, store: LocalStorage) -> None:
    table = Table(place, store, ALL, how="upsert", key="id", create=True).open()
    nulls = {"id": 1} | {name: None for name in FIRST if name != "id"}
    table.write({**FIRST, "text": ""}, FIRST, nulls)

    (found,) = place.snapshot("SELECT * FROM {}out ORDER BY id")
    first, second = (dict(zip(FIRST, row, strict=True)) for row in found)

    assert second == nulls
    as_text = isinstance(place, SqlitePlace)
    expected = {**FIRST, "tags": ["a", None, "\\"], "prices": {"x": 1.5}}
    for name in ("tags", "prices"):
        value = first[name]
        first[name] = json.loads(value) if isinstance(value, str) else value
    if as_text:
        expected["money"] = str(FIRST["money"])
        expected["day"] = "1969-07-20"
        expected["at"] = "2026-03-29 01:30:00.123456+00:00"
        expected["wall"] = "2026-03-29 02:30:00.654321"
    elif first["at"].tzinfo is None:  # MariaDB: in UTC
        first["at"] = first["at"].replace(tzinfo=UTC)
    assert first == expected


def test_modes(place: Place, store: LocalStorage) -> None:
    columns, read = "k string, n int", "SELECT k, n FROM {}out ORDER BY k, n"
    keyed = Table(place, store, columns, how="upsert", key="k", create=True).open()
    keyed.write({"k": "a", "n": 1}, {"k": "b", "n": 1}, {"k": "a", "n": 2})
    # Nothing but bytes decides which keys are the same.
    keyed.write({"k": "b", "n": 3}, {"k": "A", "n": 4}, {"k": "a ", "n": 5})

    (found,) = place.snapshot(read)
    assert {tuple(r) for r in found} == {("a", 2), ("b", 3), ("A", 4), ("a ", 5)}

    whole = Table(place, store, columns, how="replace")
    whole.epoch = 5
    whole.open(run=2)
    whole.write({"k": "x", "n": 1})
    whole.write({"k": "y", "n": 2}, {"k": "z", "n": 3})
    assert [tuple(r) for r in place.snapshot(read)[0]] == [("y", 2), ("z", 3)]

    more = Table(place, store, columns, how="append")
    more.epoch = 9
    more.open(run=3)
    more.write({"k": "q", "n": 9})
    assert len(place.snapshot(read)[0]) == 3
    with pytest.raises(FencedError):
        whole.write({"k": "zombie", "n": 0})
    with pytest.raises(FencedError):
        whole.open(run=2)
    assert len(place.snapshot(read)[0]) == 3


def test_keys_that_others_add_during_the_commit_are_replaced(
    postgres: Postgres, store: LocalStorage
) -> None:
    place = postgres_place(postgres)
    columns, name = "k string, n int", f"{place.schema}.out"
    table = Table(place, store, columns, how="upsert", key="k", create=True).open()
    with closing(postgres.connect()) as other, ThreadPoolExecutor(1) as pool:
        other.autocommit = False
        other.execute(f"INSERT INTO {name} VALUES ('b', 0)".encode())
        # It does not see the key, inserts it, and has to wait for the other one.
        writing = pool.submit(table.write, {"k": "a", "n": 1}, {"k": "b", "n": 1})
        while not postgres.query("SELECT FROM pg_locks WHERE NOT granted"):
            assert not writing.done()
        other.commit()
        writing.result()

    (found,) = place.snapshot("SELECT k, n FROM {}out ORDER BY k")
    assert [tuple(r) for r in found] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("kind", "there", "staged", "has_any"),
    [
        ("bigint", [], [1, 2], False),
        ("bigint", [1, 5], [6, 7], False),  # behind the greatest
        ("bigint", [1, 5], [2, 6], False),  # between
        ("bigint", [1, 5], [5, 6], True),
        ("bigint", [1, 5], [0, 1], True),
        ("text", ["a", None], ["b", "c"], False),
        ("text", ["a", "b"], ["c", "a"], True),
    ],
)
def test_keys_that_are_there_are_found(
    postgres: Postgres, kind: str, there: list[Any], staged: list[Any], has_any: bool
) -> None:
    dialect = PostgresDialect(parse_address(postgres.url()))
    target = Target(table="t", schema=schema_of("k string, v int"), key=("k",))
    with closing(postgres.connect()) as connection:
        for name, keys in (("t", there), ("s", staged)):
            connection.execute(f"CREATE TEMP TABLE {name} (k {kind} UNIQUE)".encode())
            for key in keys:
                connection.execute(f"INSERT INTO {name} VALUES (%s)".encode(), [key])
        assert dialect._has_any_key(connection, "s", target) is has_any


def test_tables_that_do_not_fit_are_refused_with_all_reasons(
    place: Place, store: LocalStorage
) -> None:
    if not isinstance(place, SqlitePlace):  # there, not even a file
        with pytest.raises(InvalidFlowError, match="create=True"):
            Table(place, store, "k int").open()
    Table(place, store, "k int, n float, must int", create=True).open()
    _run(place, "CREATE UNIQUE INDEX one ON {}out (k, n)")

    with pytest.raises(InvalidFlowError) as caught:
        Table(place, store, "k string, n string, extra boolean").open()
    for words in ("'k'", "'n'", "no column 'extra'"):
        assert words in str(caught.value)
    with pytest.raises(InvalidFlowError, match="unique index of exactly k"):
        Table(place, store, "k int", how="upsert", key="k").open()
    Table(place, store, "k int", how="append").open().committer.probe()


def _run(place: Place, statement: str) -> None:
    """Change a table as its owner would."""
    if isinstance(place, SqlitePlace):
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(place.folder / "out.db")) as database:
            database.execute(statement.replace("{}", ""))
            database.commit()
        return
    server: Any = place.server  # type: ignore[attr-defined]
    server.query(statement.replace("{}", f"{place.schema}."))


def test_refused_rows_are_named(place: Place, store: LocalStorage) -> None:
    columns = "k int, name string, n double"
    table = Table(place, store, columns, how="upsert", key="k", create=True).open()
    good = {"k": 1, "name": "two\nlines", "n": 1.0}

    with pytest.raises(SinkError, match="key 'k' is null") as caught:
        table.stage(good, {"k": None, "name": "x", "n": 0.0})
    assert "'out'" in str(caught.value)
    assert "epoch 0" in str(caught.value)

    if isinstance(place, SqlitePlace):
        with pytest.raises(SinkError, match="nan"):
            table.stage({**good, "n": math.nan})
        _run(place, "CREATE UNIQUE INDEX other ON {}out (name)")
        table.write(good)
    else:
        _run(place, "ALTER TABLE {}out ADD COLUMN short VARCHAR(3)")
        short = Table(place, store, f"{columns}, short string", how="append").open()
        with pytest.raises(SinkError, match=r"(?i)too long.*k=2"):
            short.stage({**good, "short": "abc"}, {**good, "k": 2, "short": "abcd"})
        _run(place, "ALTER TABLE {}out DROP COLUMN short")
        table.write(good)
        table = Table(place, store, columns, how="append")
        table.epoch = 1
        table.open(run=2)
    output = table.stage({**good, "k": 3}, {**good, "k": 1, "n": 2.0})
    with pytest.raises(CommitRejectedError, match="start again"):
        table.committer.commit(table.epoch, output)
    assert [tuple(r) for r in place.snapshot("SELECT k FROM {}out")[0]] == [(1,)]
    # What stood in the way is taken away: nothing was lost.
    _run(place, "DELETE FROM {}out")
    if isinstance(place, SqlitePlace):
        _run(place, "DROP INDEX other")
    table.committer.commit(table.epoch, output)
    rows = place.snapshot("SELECT k, n FROM {}out ORDER BY k")[0]
    assert [tuple(r) for r in rows] == [(1, 2.0), (3, 1.0)]
    assert place.tables() - {"other"} == {"out", "riverlock_epochs"}


def test_rows_staged_elsewhere_are_not_written_here(
    tmp_path: Path, store: LocalStorage
) -> None:
    one, two = SqlitePlace(tmp_path / "one"), SqlitePlace(tmp_path / "two")
    first = Table(one, store, "n int", create=True).open()
    output = first.stage({"n": 1})
    first.committer.commit(0, output)
    second = Table(two, store, "n int", create=True).open(run=2)

    with pytest.raises(CommitRejectedError, match=r"flow\.abandoned"):
        second.committer.commit(0, output)

    assert two.snapshot("SELECT * FROM out") == [[]]


def test_a_database_that_went_back_is_noticed(
    tmp_path: Path, store: LocalStorage
) -> None:
    place = SqlitePlace(tmp_path)
    table = Table(place, store, "n int", create=True).open()
    for n in range(3):
        table.write({"n": n})
    _run(place, "UPDATE riverlock_epochs SET epoch = 1")

    with pytest.raises(CommitRejectedError, match="went back from epoch 2 to 1"):
        table.write({"n": 3})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("oracle://u:geheim@h/d",), "sqlite:///"),
        (("nothing",), "no scheme"),
        (("postgresql://u:geheim@h:x/d",), "cannot be parsed"),
        (("mysql://u:geheim@h",), "no database name"),
        (("sqlite://out.db",), "a file"),
    ],
)
def test_impossible_urls_are_refused_and_not_repeated(
    arguments: tuple[str], words: str
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        rl.sinks.sql(*arguments, table="t")

    assert words in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_impossible_modes_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="append or upsert or replace"):
        rl.sinks.sql("sqlite:///x.db", table="t", how="merge")
    with pytest.raises(InvalidConfigError, match="no key"):
        rl.sinks.sql("sqlite:///x.db", table="t", how="upsert")
    sink = rl.sinks.sql("sqlite:///x.db", table="t", how="upsert", key="x")
    use = SinkUse(uid="t", schema=schema_of("k int"), replaces=False)
    with pytest.raises(InvalidFlowError, match="one of k"):
        sink.stager(use)
    whole = SinkUse(uid="t", schema=schema_of("x int"), replaces=True)
    with pytest.raises(InvalidFlowError, match="complete"):
        sink.stager(whole)


@pytest.mark.parametrize("url", ["postgresql://u:geheim@{}/d", "mysql://u:geheim@{}/d"])
def test_a_server_that_is_not_there_is_said_to_be_away(
    url: str, store: LocalStorage
) -> None:
    import socket

    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sink = rl.sinks.sql(url.format(address), table="t")
        use = SinkUse(uid="t", schema=schema_of("k int"), replaces=False)
        with pytest.raises(SinkUnavailableError, match=address) as caught:
            sink.committer(use, store).probe()
        point = StagePoint(storage=store, folder="s", epoch=0, attempt="a", flow="f")
        (token,) = sink.stager(use).stage(pa.table({"k": pa.array([1])}), point)

    assert "geheim" not in f"{caught.value} {sink!r} {token}"
    assert "path" in token, "staged in the store meanwhile"
