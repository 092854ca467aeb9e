"""Mode ``complete``: a result that becomes empty leaves an empty table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from msgspec import structs
from tests.unit.coordinator.builders import make_manifest

import riverlock as rl
from riverlock.connectors.base.committer import Committer, Owner
from riverlock.connectors.base.sink import SinkUse, TwoPhaseSink
from riverlock.connectors.base.stager import StagePoint, Stager
from riverlock.connectors.builtin_committers import ConsoleCommitter, MemoryCommitter
from riverlock.connectors.builtin_stagers import TableStager
from riverlock.core.types import schema_of
from riverlock.engines.jobs.epoch_functions import EpochFunctionCommitter
from riverlock.sinks import MemorySink
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.past import StorePast
from riverlock.storage.local import LocalStorage

SCHEMA = schema_of("k string, n bigint")
Rows = list[tuple[Any, ...]]
NO_CATALOG: Any = None


class Table:
    """A sink that is given the whole table in each epoch."""

    def __init__(self, sink: Any, folder: Path, uid: str = "out") -> None:
        self.storage = LocalStorage(folder / "store")
        use = SinkUse(uid=uid, schema=SCHEMA, replaces=True)
        self.stager: Stager = TableStager(sink=uid)
        self.committer: Committer
        if isinstance(sink, TwoPhaseSink):
            self.stager = sink.stager(use)
            self.committer = sink.committer(use, self.storage)
        elif isinstance(sink, MemorySink):
            self.committer = MemoryCommitter(sink, self.storage, replaces=True)
        else:
            self.committer = ConsoleCommitter(sink, self.storage)
        self.committer.open(Owner(flow="f", sink=uid, run=1, token="t"))

    def give(self, epoch: int, *rows: tuple[Any, ...]) -> None:
        at = StagePoint(
            storage=self.storage,
            folder=f"staged/{epoch:012d}",
            epoch=epoch,
            attempt=f"000001-s-00000-{epoch:012d}",
            flow="f",
        )
        columns = [list(c) for c in zip(*rows, strict=True)]
        table = pa.table(columns, schema=SCHEMA.to_arrow()) if rows else None
        tokens = () if table is None else tuple(self.stager.stage(table, at))
        output = SinkOutput(kind="any", tokens=tokens, run="t", replaces=True)
        self.committer.commit(epoch, output)


def sqlite(folder: Path) -> tuple[Any, Callable[[], Rows]]:
    url = f"sqlite:///{folder}/out.db"

    def rows() -> Rows:
        with closing(sqlite3.connect(folder / "out.db")) as database:
            return database.execute("SELECT k, n FROM t").fetchall()

    return rl.sinks.sql(url, table="t", how="replace", create=True), rows


def delta(folder: Path) -> tuple[Any, Callable[[], Rows]]:
    path = str(folder / "t")

    def rows() -> Rows:
        found = DeltaTable(path).to_pyarrow_table().to_pylist()
        return [tuple(row.values()) for row in found]

    return rl.sinks.delta(path), rows


def memory(folder: Path) -> tuple[Any, Callable[[], Rows]]:
    sink = rl.sinks.memory()
    return sink, sink.rows


@pytest.mark.parametrize("kind", [sqlite, delta, memory])
def test_an_empty_result_leaves_an_empty_table(tmp_path: Path, kind: Any) -> None:
    sink, rows = kind(tmp_path)
    table = Table(sink, tmp_path)
    table.give(0, ("a", 1), ("b", 2))
    table.give(1)
    assert rows() == []

    table.give(1)  # its answer was lost
    assert rows() == []
    table.give(2, ("b", 3))
    assert rows() == [("b", 3)]


def test_an_empty_result_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Table(rl.sinks.console(), tmp_path).give(3)
    assert capsys.readouterr().out == "-- epoch 3: 0 rows\n"


def test_writers_that_share_a_memory_sink_keep_their_rows(tmp_path: Path) -> None:
    sink = rl.sinks.memory()
    first, second = (Table(sink, tmp_path / uid, uid) for uid in ("one", "two"))
    first.give(0, ("a", 1))
    second.give(0, ("b", 2))
    assert sink.rows() == [("a", 1), ("b", 2)]

    first.give(1, ("a", 3))
    second.give(1)
    assert sink.rows() == [("a", 3)]
    second.give(2, ("b", 4))
    assert sink.epochs == {1: [("a", 3)], 2: [("b", 4)]}


class Session:
    """As much of Spark as an empty table needs."""

    def createDataFrame(self, rows: list[Any], schema: str) -> Any:  # noqa: N802
        return rows, schema


def test_a_function_is_told_that_the_table_is_empty(tmp_path: Path) -> None:
    calls: list[Any] = []
    sink = rl.sinks.for_each_epoch(lambda frame, epoch: calls.append((epoch, frame)))
    committer = EpochFunctionCommitter(
        sink,
        LocalStorage(tmp_path),
        Session(),  # type: ignore[arg-type]
        SCHEMA,
    )

    committer.commit(3, SinkOutput(kind="for_each_epoch", replaces=True))
    committer.commit(4, SinkOutput(kind="for_each_epoch"))

    assert calls == [(3, ([], SCHEMA.ddl))]


def test_a_sink_of_whole_tables_may_lack_epochs_before_the_newest() -> None:
    given = SinkOutput(kind="sql", tokens=("t",), before=1)
    for is_whole, expected in ((False, 1), (True, None)):
        output = structs.replace(given, replaces=is_whole)
        past = StorePast(NO_CATALOG, make_manifest(3, outputs={"out": output}))
        assert past.expected("out", "") == expected
