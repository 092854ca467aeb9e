"""``flow.check``: what a start would be refused for, told before one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.core.errors import (
    InvalidFlowError,
    SinkUnavailableError,
    SourceError,
    StateSchemaError,
)

pytestmark = pytest.mark.spark


def counted(folder: Path, uid: str = "per_k") -> rl.Flow:
    flow = rl.Flow("counted")
    rows = flow.read(
        rl.sources.files(str(folder / "in"), format="json", schema="k string"), uid="in"
    )
    counts = rows.key_by("k").count(uid=uid)
    url = f"sqlite:///{folder}/out.db"
    counts.write(rl.sinks.sql(url, table="counts", create=True), uid="out")
    return flow


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"k": "a"}\n')
    return tmp_path


def test_sinks_are_asked(spark: SparkSession, home: Path) -> None:
    counted(home).check(spark=spark)
    assert not (home / "out.db").exists()
    with closing(sqlite3.connect(home / "out.db")) as database:
        database.execute("CREATE TABLE counts (k TEXT)")

    with pytest.raises(InvalidFlowError, match="counts"):
        counted(home).check(spark=spark)

    flow = counted(home)
    dead = rl.sinks.sql("postgresql://127.0.0.1:9/none", table="t")
    flow.read(rl.sources.generator({"k": "id"}, rows=1), uid="more").write(
        dead, uid="dead"
    )
    (home / "out.db").unlink()
    with pytest.raises(SinkUnavailableError, match="dead"):
        flow.check(spark=spark)


def test_so_is_the_store(spark: SparkSession, home: Path) -> None:
    store = str(home / "store")
    counted(home).check(store=store, spark=spark)
    assert not (home / "store").exists()
    counted(home).run(store, spark=spark, available_now=True)
    counted(home).check(store=store, spark=spark)

    with pytest.raises(StateSchemaError, match="per_k"):
        counted(home, uid="other").check(store=store, spark=spark)
    (home / "in").rename(home / "elsewhere")
    with pytest.raises(SourceError, match="does not exist"):
        counted(home).check(store=store, spark=spark)
