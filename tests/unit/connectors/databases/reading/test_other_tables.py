"""A position says nothing about another table, nor about one that was put back."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.connectors.base.source_reader import check_situated
from riverlock.connectors.databases.reading.reader import SqlReader
from riverlock.core.clock import ManualClock
from riverlock.core.errors import SourceError
from riverlock.snapshot.format.records import InputRange


def reader(url: str, **settings: Any) -> SqlReader:
    """A reader that plans; only ``read`` needs Spark."""
    chosen: dict[str, Any] = {"table": "orders", "column": "id", **settings}
    source = rl.sources.sql(url, **chosen)
    no_spark = cast("SparkSession", None)
    return SqlReader(no_spark, source, "orders", ManualClock(), takes_all=False)


def do(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as line, line:
        for statement in statements:
            line.execute(statement)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    do(
        file,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY)",
        "CREATE TABLE others (id INTEGER PRIMARY KEY)",
        "INSERT INTO orders VALUES (1), (2), (3), (4)",
    )
    return file


def read_all(from_: SqlReader, start: Any = None) -> Any:
    """Return the position behind all rows."""
    start = from_.initial() if start is None else start
    return from_.advance(start, from_.latest(start), 1000)


def go_on(later: SqlReader, position: Any) -> None:
    """Look at a place as a start does."""
    check_situated({"orders": later}, {"orders": InputRange(start=None, end=position)})


@pytest.mark.parametrize(
    "other",
    [
        {"url": "sqlite:////srv/other.db"},
        {"table": "others"},
        {"query": "SELECT id FROM orders", "url": "sqlite:////srv/other.db"},
    ],
)
def test_another_table_is_told_before_anything_is_read(
    shop: Path, other: dict[str, Any]
) -> None:
    position = read_all(reader(f"sqlite:///{shop}"))
    settings = {"url": f"sqlite:///{shop}", **other}
    if "query" in settings:
        settings |= {"table": None, "schema": "id long"}

    with pytest.raises(SourceError, match="rows up to id = 4 were read from") as caught:
        go_on(reader(**settings), position)

    assert f"sqlite:///{shop}" in caught.value.message
    assert "another uid and after=4" in caught.value.hint


@pytest.mark.parametrize(
    "same",
    [
        {"query": "SELECT id FROM orders WHERE id > 0"},
        {"schema": "id long"},
    ],
)
def test_another_program_on_the_same_database_goes_on(
    shop: Path, same: dict[str, Any]
) -> None:
    position = read_all(reader(f"sqlite:///{shop}"))
    settings = {"schema": "id long", **same}
    if "query" in settings:
        settings["table"] = None

    go_on(reader(f"sqlite:///{shop}", **settings), position)


def test_where_nothing_was_read_the_place_may_change(shop: Path) -> None:
    go_on(reader("sqlite:////srv/other.db"), reader(f"sqlite:///{shop}").initial())


def test_a_position_of_an_older_version_goes_on(shop: Path) -> None:
    later = reader(f"sqlite:///{shop}")
    old = {"value": 2, "rows": 2}

    go_on(later, old)
    new = read_all(later, old)

    assert (new["value"], new["rows"]) == (4, 4)
    with pytest.raises(SourceError):
        go_on(reader("sqlite:////srv/other.db"), new)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("postgresql://a:x@db/shop", "postgresql://b:y@db:5432/shop", True),
        ("postgresql:///shop?host=/run/a", "postgresql:///shop?host=/run/b", False),
        ("postgresql://db/shop", "postgresql://db/eu", False),
        ("mysql://db/shop", "mariadb://db:3306/shop", True),
        ("mysql://db/shop", "mysql://db:3307/shop", False),
    ],
)
def test_what_tells_servers_apart(one: str, other: str, is_same: bool) -> None:
    def at(url: str) -> SqlReader:
        return reader(url, delay="1 second", schema="id long")

    position = {"value": 7, "rows": 3, **place(one)}
    assert "x@" not in str(position)
    if is_same:
        go_on(at(other), position)
    else:
        with pytest.raises(SourceError, match="rows up to id = 7"):
            go_on(at(other), position)


def place(url: str) -> dict[str, Any]:
    from riverlock.connectors.databases.reading.table_place import place_of_table

    return place_of_table(
        rl.sources.sql(url, table="orders", column="id", delay="1 second")
    )


def test_rows_added_behind_the_position_stop_the_run(
    shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A table put back from a backup gives the same numbers again."""
    position = read_all(reader(f"sqlite:///{shop}"))
    do(shop, "DELETE FROM orders WHERE id > 2")
    later = reader(f"sqlite:///{shop}")

    with caplog.at_level(logging.WARNING):
        assert read_all(later, position) == position
        assert read_all(later, position) == position
    assert len(caplog.records) == 1
    assert "rows up to id = 4 were read, but the newest row has 2" in caplog.text
    do(shop, "INSERT INTO orders VALUES (3)")

    with pytest.raises(SourceError, match="a row with id = 3 was added, though rows"):
        later.latest(position)


def test_so_they_do_in_a_table_that_was_emptied(shop: Path) -> None:
    """SQLite numbers anew from 1, unless it is told not to."""
    later = reader(f"sqlite:///{shop}")
    position = read_all(later)
    assert read_all(later, position) == position
    do(shop, "DELETE FROM orders")
    assert read_all(later, position) == position
    do(shop, "INSERT INTO orders DEFAULT VALUES")

    with pytest.raises(SourceError, match="its numbering restarted"):
        later.latest(position)


def test_the_row_of_the_position_itself_may_come_again(shop: Path) -> None:
    later = reader(f"sqlite:///{shop}")
    position = read_all(later)
    do(shop, "DELETE FROM orders WHERE id > 3")
    assert read_all(later, position) == position
    do(shop, "INSERT INTO orders VALUES (4)")

    with pytest.raises(SourceError, match="a row with id = 4 was added"):
        later.latest(position)


def test_rows_may_be_deleted(shop: Path) -> None:
    later = reader(f"sqlite:///{shop}")
    position = read_all(later)
    for left in (4, 2, 0):
        do(shop, f"DELETE FROM orders WHERE id > {left} OR id = 1")
        assert read_all(later, position) == position
    do(shop, "INSERT INTO orders VALUES (5), (6)")

    assert read_all(later, position)["value"] == 6


def test_rows_before_the_first_that_counts_may_come(shop: Path) -> None:
    later = reader(f"sqlite:///{shop}", after=100)
    position = later.initial()
    for new in (50, 60):
        do(shop, f"INSERT INTO orders VALUES ({new})")
        assert later.latest(position)["value"] == 100
