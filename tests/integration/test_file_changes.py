"""Files with odd names, files that change under a flow, folders that are not there."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.core.errors import InvalidFlowError, SourceError
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark


def put(folder: Path, name: str, number: int, rows: int = 1) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"n": number + i}) + "\n" for i in range(rows)]
    (folder / name).write_text("".join(lines))


def flow_of(path: Path | str, out: Any, **options: Any) -> rl.Flow:
    flow = rl.Flow("names")
    source = rl.sources.files(str(path), format="json", schema="n int", **options)
    flow.read(source, uid="in").write(out, uid="out")
    return flow


def run(flow: rl.Flow, tmp: Path, spark: SparkSession) -> Any:
    return flow.run(str(tmp / "store"), spark=spark, available_now=True)


NAMES = (
    "a:1.json",
    "2026-01-01T10:00:00.json",
    "ab.json",
    "[x]*{y,z}?.json",
    "new\nline.json",
    "per%41cent %.json",
    "ünï.json",
    "u\u0308.json",
)


def test_files_are_read_whatever_their_names_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number, name in enumerate(NAMES):
        put(tmp_path / "in", name, number)
    put(tmp_path / "in", "last.json", 99)
    out = rl.sinks.memory()

    run(flow_of(tmp_path / "in", out), tmp_path, spark)
    put(tmp_path / "in", "alone:1.json", 100)
    run(flow_of(tmp_path / "in", out), tmp_path, spark)

    assert sorted(out.rows()) == [(n,) for n in (*range(len(NAMES)), 99, 100)]


def test_a_file_that_cannot_be_opened_by_its_name_is_set_aside_and_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in"
    put(folder, "a.json", 1)
    (folder / "self.json").symlink_to(folder / "self.json")
    put(folder, "back\\slash.json", 2)
    put(folder, "[odd]:1.json", 2)
    odd = os.fsencode(folder) + b"/caf\xe9.json"
    Path(os.fsdecode(odd)).write_text('{"n": 2}\n')
    out = rl.sinks.memory()

    with caplog.at_level(logging.WARNING):
        status = run(flow_of(folder, out), tmp_path, spark)

    assert out.rows() == [(1,)]
    assert status.files_set_aside == 4
    told = [r.getMessage() for r in caplog.records if "set aside" in r.getMessage()]
    assert any("self.json" in text for text in told)
    assert any("caf\\xe9.json" in text for text in told)

    put(folder, "b.json", 3)
    run(flow_of(folder, out), tmp_path, spark)
    assert sorted(out.rows()) == [(1,), (3,)]


@pytest.mark.parametrize("pattern", ["in", "in/*"])
def test_files_half_written_or_hidden_are_left_alone(
    spark: SparkSession, tmp_path: Path, pattern: str
) -> None:
    folder = tmp_path / "in"
    put(folder, "a.json", 1)
    for name in ("_b.json", ".c.json", "d.json.tmp", "e.json._COPYING_"):
        put(folder, name, 2)
    out = rl.sinks.memory()

    run(flow_of(tmp_path / pattern, out), tmp_path, spark)

    assert out.rows() == [(1,)]


@pytest.mark.parametrize("change", ["cut", "longer", "replaced"])
def test_a_file_that_changes_while_its_epoch_runs_stops_it_undecided(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    folder = tmp_path / "in"
    put(folder, "a.json", 0, rows=100)
    put(folder, "b.json", 100, rows=100)
    file, out = folder / "b.json", rl.sinks.memory()

    def changing(frame: Any) -> Any:
        """Change the file after the epoch was planned, before a task reads it."""
        if frame.inputFiles() and not (tmp_path / "done").exists():
            (tmp_path / "done").touch()
            match change:
                case "cut":
                    os.truncate(file, file.stat().st_size // 2)
                case "longer":
                    with file.open("a") as end:
                        end.write('{"n": 200}\n')
                case _:
                    put(tmp_path / "new", "b.json", 500, rows=100)
                    (tmp_path / "new" / "b.json").rename(file)
        return frame

    flow = rl.Flow("changes")
    source = rl.sources.files(str(folder), format="json", schema="n int")
    flow.read(source, uid="in").transform(changing).write(out, uid="out")

    with pytest.raises(SourceError, match=r"b\.json has changed"):
        run(flow, tmp_path, spark)

    assert out.rows() == []
    assert Catalog(open_storage(str(tmp_path / "store"))).epochs() == []


class Order(rl.Process):
    output = "k string, n long, wrong long"
    last = rl.Value("long", default=-1)
    n = rl.Value("long", default=0)
    wrong = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.wrong += row.n != self.last + 1
        self.last = row.n
        self.n += 1
        yield row.k, self.n, self.wrong


def test_records_of_a_key_are_in_order_however_small_splits_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    put(folder, "a.json", 0, rows=3_000)
    put(folder, "b.json", 3_000, rows=10)
    os.utime(folder / "a.json", (1, 1))
    out = rl.sinks.memory()
    flow = rl.Flow("order")
    source = rl.sources.files(str(folder), format="json", schema="n long")
    rows = flow.read(source, uid="in").with_column("k", "'x'")
    rows.key_by("k").process(Order(), uid="order").write(out, uid="out")
    name = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(name)
    assert before is not None

    spark.conf.set(name, "4096")
    try:
        run(flow, tmp_path, spark)
    finally:
        spark.conf.set(name, before)

    assert max(out.rows(), key=lambda r: r[1]) == ("x", 3_010, 0)


@pytest.mark.parametrize("path", ["inn", "inn/2026-*", "in/_hidden.json"])
def test_a_folder_that_is_not_there_is_an_error(
    spark: SparkSession, tmp_path: Path, path: str
) -> None:
    put(tmp_path / "in", "a.json", 1)
    put(tmp_path / "in", "_hidden.json", 1)
    flow = flow_of(tmp_path / path, rl.sinks.memory())

    with pytest.raises(SourceError, match=str(tmp_path / path.partition("/")[0])):
        flow.check(spark=spark)
    with pytest.raises(SourceError) as caught:
        run(flow, tmp_path, spark)

    assert "missing='wait'" in caught.value.hint or "_hidden" in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_a_folder_may_come_later_if_that_is_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = rl.sinks.memory()
    flow = flow_of(tmp_path / "in", out, missing="wait", bounded=True)

    flow.check(spark=spark)
    assert run(flow, tmp_path, spark) is not None
    put(tmp_path / "in", "a.json", 1)
    run(flow_of(tmp_path / "in", out, missing="wait", bounded=True), tmp_path, spark)

    assert out.rows() == [(1,)]


def test_a_folder_that_goes_away_stops_a_flow_that_reads_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "in", "a.json", 1)
    out = rl.sinks.memory()
    run(flow_of(tmp_path / "in", out), tmp_path, spark)

    (tmp_path / "in").rename(tmp_path / "elsewhere")

    with pytest.raises(SourceError, match="in does not exist"):
        run(flow_of(tmp_path / "in", out), tmp_path, spark)


def test_a_flow_does_not_read_what_it_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each run would take the rows of the one before for more input."""
    folder = tmp_path / "data"
    put(folder, "a.json", 1)
    out = rl.sinks.files(str(folder / "out"), format="json")

    with pytest.raises(InvalidFlowError, match="read what it writes"):
        run(flow_of(folder, out), tmp_path, spark)

    assert [p.name for p in folder.iterdir()] == ["a.json"]
