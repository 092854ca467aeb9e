"""Tables that are not there: an error when a flow is checked, or waited for."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.connectors.databases.reading.reader import SqlReader
from riverlock.core.clock import ManualClock
from riverlock.core.errors import (
    InvalidConfigError,
    InvalidFlowError,
    SourceError,
    SourceUnavailableError,
)


def reader(file: Path, **settings: Any) -> SqlReader:
    """A reader that looks; only ``read`` needs Spark."""
    chosen: dict[str, Any] = {"table": "orders", "column": "id", **settings}
    source = rl.sources.sql(f"sqlite:///{file}", **chosen)
    no_spark = cast("SparkSession", None)
    return SqlReader(no_spark, source, "in", ManualClock(), takes_all=False)


def make(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as line:
        line.execute(statement)
        line.commit()


def test_a_file_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        reader(tmp_path / "no.db").initial()

    assert not isinstance(caught.value, SourceUnavailableError)
    assert "no.db does not exist" in caught.value.message
    assert "missing='wait'" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_a_table_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    make(tmp_path / "a.db", "CREATE TABLE others (id INTEGER)")

    with pytest.raises(InvalidFlowError) as caught:
        reader(tmp_path / "a.db").initial()

    assert "missing='wait'" in caught.value.hint


def test_tables_and_columns_of_a_query_are_looked_for_before_a_run(
    tmp_path: Path,
) -> None:
    make(tmp_path / "a.db", "CREATE TABLE orders (id INTEGER)")
    given: dict[str, Any] = {"table": None, "schema": "id bigint"}

    reader(tmp_path / "a.db", query="SELECT id FROM orders", **given).initial()
    with pytest.raises(SourceError, match="no such table"):
        reader(tmp_path / "a.db", query="SELECT id FROM others", **given).initial()
    with pytest.raises(InvalidFlowError, match="one of the query: one"):
        reader(tmp_path / "a.db", query="SELECT 1 one", **given).initial()


def test_files_and_tables_are_waited_for_if_asked(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    waiting = reader(file, missing="wait")

    with pytest.raises(SourceUnavailableError):
        waiting.initial()
    make(file, "CREATE TABLE others (id INTEGER)")
    with pytest.raises(SourceUnavailableError, match="no table orders"):
        waiting.initial()
    make(file, "CREATE TABLE orders (id INTEGER)")

    begin = waiting.initial()
    assert (begin["value"], begin["rows"]) == (None, 0)


def test_what_a_query_waits_for_is_not_known(tmp_path: Path) -> None:
    given: dict[str, Any] = {"query": "SELECT 1 AS id", "schema": "id bigint"}

    with pytest.raises(InvalidConfigError, match="table="):
        reader(tmp_path / "a.db", table=None, missing="wait", **given)
