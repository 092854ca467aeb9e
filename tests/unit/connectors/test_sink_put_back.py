"""A sink that was put back from a backup of its own, while its flow was down."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.unit.snapshot.local_flow import source
from tests.unit.snapshot.small_flow import GROUPS, Row, SmallFlow, output_of

import riverlock as rl
from riverlock.core.errors import CommitRejectedError, FencedError
from riverlock.snapshot.verbs.restore import plan_restore, restore
from riverlock.storage.local import LocalStorage
from riverlock.testing import SinkRun

ROWS: list[Row] = [(f"k{n * 7 % 5}", n % 11) for n in range(60)]


@dataclass
class Written(SmallFlow):
    """The small flow with another sink; ``out`` is its place."""

    kind: str = "sqlite"
    uid: str = "out"

    def build(self) -> rl.Flow:
        flow = rl.Flow("small", key_groups=GROUPS)
        rows = flow.read(source("k string, v long"), uid="rows")
        sums = rows.key_by("k").process(self.process(), uid="op")
        sums.write(self.sink(), uid=self.uid)
        return flow

    def sink(self) -> Any:
        match self.kind:
            case "sqlite":
                url = f"sqlite:///{self.out}/out.db"
                return rl.sinks.sql(url, table="sums", create=True)
            case "delta":
                return rl.sinks.delta(str(self.out))
            case _:
                return rl.sinks.files(str(self.out), format="json")

    def output(self) -> Counter[Row]:
        match self.kind:
            case "sqlite":
                with closing(sqlite3.connect(self.out / "out.db")) as database:
                    return Counter(database.execute("SELECT k, total FROM sums"))
            case "delta":
                rows = DeltaTable(str(self.out)).to_pyarrow_table().to_pylist()
                return Counter((row["k"], row["total"]) for row in rows)
            case _:
                return self.written()


def made(tmp_path: Path, kind: str) -> Written:
    (tmp_path / "out").mkdir()
    return Written(tmp_path / "store", ROWS, tmp_path / "out", kind=kind)


def kept(flow: Written) -> Path:
    """Make a backup of what the sink writes to."""
    backup = flow.out.with_name("backup")
    shutil.copytree(flow.out, backup)
    return backup


def put_back(flow: Written, backup: Path) -> None:
    shutil.rmtree(flow.out)
    shutil.copytree(backup, flow.out)


KINDS = pytest.mark.parametrize("kind", ["sqlite", "delta", "files"])


@KINDS
def test_epochs_that_a_sink_has_lost_end_the_start(tmp_path: Path, kind: str) -> None:
    flow = made(tmp_path, kind)
    flow.run(3)
    backup = kept(flow)
    newest = flow.run(4)
    put_back(flow, backup)

    with pytest.raises(CommitRejectedError, match="epochs 3 to 5") as raised:
        flow.run()

    assert "nothing was written" in str(raised.value)
    assert flow.output() == output_of(ROWS[:9])
    assert flow.catalog.epochs()[-1] == newest, "no epoch was decided"


@KINDS
@pytest.mark.parametrize("first", [0, 3])
def test_a_sink_that_goes_back_under_a_live_run_ends_it(
    tmp_path: Path, kind: str, first: int
) -> None:
    """Also to before its first epoch: the epochs between would be missing."""
    sink = made(tmp_path, kind)
    store = LocalStorage(tmp_path / "store")
    run = SinkRun(sink=sink.sink(), storage=store, run=1, flow="small")
    numbers = range(first)
    for epoch in numbers:
        run.commit(epoch, run.stage(epoch, [(epoch, "a", epoch)]))
    backup = kept(sink)
    for epoch in (first, first + 1) if first else (first,):
        run.commit(epoch, run.stage(epoch, [(epoch, "a", epoch)]))
    put_back(sink, backup)
    output = run.stage(9, [(9, "a", 9)])

    with pytest.raises((CommitRejectedError, FencedError)):
        run.commit(9, output)

    assert ids_in(sink) == list(numbers)


def ids_in(sink: Written) -> list[int]:
    """Return the rows of ``SinkRun`` that readers see."""
    match sink.kind:
        case "sqlite":
            with closing(sqlite3.connect(sink.out / "out.db")) as database:
                return [i for (i,) in database.execute("SELECT id FROM sums")]
        case "delta":
            found = DeltaTable(str(sink.out)).to_pyarrow_table().to_pylist()
            return sorted(row["id"] for row in found)
        case _:
            files = sorted(sink.out.glob("epoch=*/*.json"))
            return [json.loads(file.read_text())["id"] for file in files]


@KINDS
def test_a_flow_that_goes_back_to_where_its_sink_is_loses_nothing(
    tmp_path: Path, kind: str
) -> None:
    flow = made(tmp_path, kind)
    flow.run(3)
    backup = kept(flow)
    flow.run(4)
    put_back(flow, backup)

    catalog = flow.catalog
    plan = plan_restore(catalog, catalog.manifest(2))
    restore(catalog, plan, now_us=flow.clock.now_us())
    flow.run()

    assert flow.output() == output_of(ROWS)


@KINDS
def test_the_newest_epoch_is_given_again_if_its_rows_are_there(
    tmp_path: Path, kind: str
) -> None:
    flow = made(tmp_path, kind)
    flow.run(3)
    backup = kept(flow)
    flow.run(1)
    put_back(flow, backup)

    if kind == "sqlite":  # staged in the store
        flow.run()
        assert flow.output() == output_of(ROWS)
        return
    with pytest.raises(CommitRejectedError, match="epoch 3"):
        flow.run()
    assert flow.output() == output_of(ROWS[:9])


@pytest.mark.parametrize("kind", ["delta", "files"])
def test_output_that_is_gone_as_a_whole_ends_the_start(
    tmp_path: Path, kind: str
) -> None:
    flow = made(tmp_path, kind)
    flow.run(3)
    shutil.rmtree(flow.out)

    with pytest.raises(CommitRejectedError, match="epochs up to 1"):
        flow.run()

    assert not flow.out.exists()


def test_a_table_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    flow = made(tmp_path, "sqlite")
    flow.run(3)
    with closing(sqlite3.connect(flow.out / "out.db")) as database:
        database.execute("DROP TABLE sums")

    with pytest.raises(CommitRejectedError, match="epochs up to 1"):
        flow.run()

    with closing(sqlite3.connect(flow.out / "out.db")) as database:
        names = database.execute("SELECT name FROM sqlite_master").fetchall()
    assert ("sums",) not in names


@KINDS
def test_a_new_place_and_a_new_uid_lack_nothing(tmp_path: Path, kind: str) -> None:
    flow = made(tmp_path, kind)
    flow.run(3)
    flow.out = tmp_path / "elsewhere"
    flow.out.mkdir()
    for epochs in (0, 1, 0, 2):
        flow.run(epochs)
    assert flow.output() == output_of(ROWS[:18]) - output_of(ROWS[:9])

    flow.uid, flow.out = "another", tmp_path / "third"
    flow.out.mkdir()
    flow.run(1)
    flow.run()
    assert flow.output() == output_of(ROWS) - output_of(ROWS[:18])


def test_a_backup_that_is_put_up_elsewhere_is_told(tmp_path: Path) -> None:
    """Nobody gives it the newest epoch, which is where it was decided to go."""
    flow = made(tmp_path, "sqlite")
    flow.run(3)
    backup = kept(flow)
    flow.run(1)

    flow.out = backup
    with pytest.raises(CommitRejectedError, match="epoch 3, which it had"):
        flow.run()

    assert flow.output() == output_of(ROWS[:9])


def test_what_was_lost_is_given_up_by_another_uid(tmp_path: Path) -> None:
    flow = made(tmp_path, "sqlite")
    flow.run(3)
    backup = kept(flow)
    flow.run(4)
    put_back(flow, backup)

    flow.uid = "again"
    flow.run(1)
    flow.run()

    lost = output_of(ROWS[:21]) - output_of(ROWS[:9])
    assert flow.output() == output_of(ROWS) - lost


def test_what_was_lost_of_files_is_given_up_by_a_listing(tmp_path: Path) -> None:
    flow = made(tmp_path, "files")
    flow.run(3)
    backup = kept(flow)
    flow.run(4)
    put_back(flow, backup)
    for epoch in (5, 6):  # the newest has its own error, which says the same
        with pytest.raises(CommitRejectedError) as raised:
            flow.run()
        path = tmp_path / f"out/_riverlock/{epoch:012d}.json"
        assert f"creating the file {path}" in str(raised.value) or (
            f"create the file {path}" in str(raised.value)
        )
        path.touch()

    flow.run()

    lost = output_of(ROWS[:21]) - output_of(ROWS[:9])
    assert flow.output() == output_of(ROWS) - lost


def test_a_new_store_that_adds_to_rows_of_another_one_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The path of the store may be wrong: all rows would come once more."""
    flow = made(tmp_path, "sqlite")
    flow.run(2)
    flow.run(2)
    assert "another store" not in caplog.text, "nothing is said about one's own rows"

    lost = Written(tmp_path / "stroe", ROWS, flow.out)
    lost.run(2)

    assert "table sums has rows" in caplog.text
    assert "of another store" in caplog.text
    caplog.clear()
    lost.run(2)
    assert "another store" not in caplog.text, "said once"


def test_a_table_without_rows_is_nobody_elses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow = made(tmp_path, "sqlite")
    flow.run(2)
    with closing(sqlite3.connect(flow.out / "out.db")) as database:
        database.execute("DELETE FROM sums")
        database.commit()

    Written(tmp_path / "another", ROWS, flow.out).run(2)

    assert "another store" not in caplog.text
