"""Holes found by a review before the release; each was red when it was written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import riverlock as rl
from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.builtin_stagers import TableStager
from riverlock.core.hidden_columns import SEQ, TIME
from riverlock.flow.inside import program_of
from riverlock.program.graph import declared_behind_keyed
from riverlock.storage import LocalStorage
from riverlock.worker.event_times import DeclaredTimes, greatest_times
from riverlock.worker.task import Staging, Targets


def test_a_file_that_vanishes_while_the_folder_is_listed_is_not_there(
    tmp_path: Path, store: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from riverlock import sources
    from riverlock.connectors.files.reading.reader import FilesReader
    from riverlock.snapshot.format.store_layout import RegionPaths

    (tmp_path / "a.json").write_text("{}\n")
    source = sources.files(str(tmp_path), format="json", schema="n bigint")
    reader = FilesReader(None, source, "in", (store, RegionPaths("main")))  # type: ignore[arg-type]
    real = os.walk

    def walk(top: Any, **how: Any) -> Iterator[Any]:
        for folder, folders, names in real(top, **how):
            yield folder, folders, [*names, "b.json.part"]  # renamed meanwhile

    monkeypatch.setattr(os, "walk", walk)

    assert reader.latest(reader.initial())["count"] == 1


def test_times_of_a_later_stage_do_not_move_the_watermark_of_another_input() -> None:
    # Rows of an earlier stage carry no number of their declaration; "b" made them.
    table = pa.table({TIME: [5_000_000]})
    declared = DeclaredTimes(names=("a", "b"), column=TIME)

    assert greatest_times(table, declared).get("a") is None


def test_a_window_that_is_given_early_does_not_move_the_watermark() -> None:
    # Its row has the time of its end, which no record has reached.
    table = pa.table({TIME: [3_599_999_999]})
    declared = DeclaredTimes(names=("a",), column=TIME, follows_keyed=True)

    assert greatest_times(table, declared) == {}


def test_a_time_that_is_declared_behind_an_operator_moves_the_watermark() -> None:
    flow = rl.Flow("declared")
    columns = "k long, at timestamp"
    source = rl.sources.files("in", format="json", schema=columns)
    rows = flow.read(source, uid="in")
    latest = rows.key_by("k").agg(at="max(at)", uid="latest")
    latest.event_time("at").key_by("k").agg(n="count(*)", uid="behind")
    latest.key_by("k").agg(n="count(*)", uid="without")

    found = {k.uid: declared_behind_keyed(k) for k in program_of(flow).keyed}

    assert found == {"latest": False, "behind": True, "without": False}


def test_an_output_and_a_sink_of_the_same_name_do_not_share_a_file(
    store: LocalStorage,
) -> None:
    import pyarrow.parquet as pq

    point = StagePoint(storage=store, folder="staged/0", epoch=0, attempt="a")
    staging = Staging(point)
    table = pa.table({"n": [1], SEQ: [7], TIME: [9]})

    staging.output(
        "odd", table, Targets(sinks={"odd": TableStager(sink="odd")}, is_staged=True)
    )

    (path,) = staging.staged["odd"]
    assert SEQ in pq.read_table(store.root / path).column_names


def test_what_expires_in_an_epoch_that_is_aborted_stays(
    store: LocalStorage, tmp_path: Path
) -> None:
    from riverlock.state.copy.baseline import Baseline
    from riverlock.state.copy.lmdb import LmdbStore
    from riverlock.state.copy.working_copy import WorkingCopy
    from riverlock.state.store import Changes, Version

    copy = WorkingCopy(tmp_path / "work", (0, 8), "t")
    layout: Any = SimpleNamespace(digest="d" * 32)
    expiry = (50 + (1 << 63)).to_bytes(8, "big")
    changes = Changes.empty()
    changes.puts[b"id"] = expiry + b"value"
    changes.expiries.append(expiry + b"id")
    LmdbStore(tmp_path / "work" / "00000-00008").apply(
        changes, Version(0, "t", layout.digest)
    )
    early = Baseline(epoch=0, now_us=10, history=((0, "t"),))
    late = Baseline(epoch=0, now_us=100, history=((0, "t"),))

    # Whatever instant an epoch sees, only what has expired by the committed time goes:
    # the epoch may be aborted, and the clock of the next run may be behind.
    with copy.reading(early, layout, store) as reader:
        assert reader.get(b"id") is not None
    with copy.reading(late, layout, store) as reader:
        assert reader.get(b"id") is None


needs_spark = pytest.mark.spark


def run(flow: rl.Flow, store: Path, spark: Any, **options: Any) -> Any:
    return flow.run(str(store), spark=spark, **{"available_now": True, **options})


@needs_spark
def test_an_epoch_whose_rows_are_all_filtered_out_is_committed(
    spark: Any, tmp_path: Path
) -> None:
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class _Numbers(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"n": 0}

        def read(self, start: dict[str, int]) -> Any:
            return iter([(1,)] if start["n"] == 0 else []), {"n": 1}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:
            return iter([(i,) for i in range(start["n"], end["n"])])

    class Numbers(DataSource):
        def schema(self) -> str:
            return "n bigint"

        def simpleStreamReader(self, schema: Any) -> Any:
            return _Numbers()

    flow = rl.Flow("empty", key_groups=4)
    numbers = flow.read(rl.sources.python(Numbers), uid="in")
    numbers.where("n > 100").key_by("n").count(uid="c").write(rl.sinks.memory())

    assert run(flow, tmp_path, spark).epoch == 0


class Known(rl.Process):
    output = "k bigint, n bigint"
    n = rl.Value("bigint", default=0)

    def on_initial(self, row: Any, ctx: Any) -> None:
        self.n = row.n

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.n += 1
        yield e.k, self.n


@needs_spark
def test_an_operator_that_is_added_later_gets_its_initial_state(
    spark: Any, tmp_path: Path
) -> None:
    def flow(rows: int, out: Any) -> rl.Flow:
        made = rl.Flow("later", key_groups=4)
        source = rl.sources.generator({"k": "id % 1"}, rows=rows)
        numbers = made.read(source, uid="in")
        numbers.key_by("k").count(uid="c").write(rl.sinks.memory(), uid="m")
        if out is not None:
            first = spark.createDataFrame([(0, 100)], "k bigint, n bigint")
            keyed = numbers.key_by("k").process(Known(), uid="known", initial=first)
            keyed.write(out, uid="out")
        return made

    out = rl.sinks.memory()
    run(flow(1, None), tmp_path, spark)
    run(flow(2, out), tmp_path, spark)

    assert out.rows() == [(0, 101)]


@needs_spark
def test_landed_rows_keep_the_order_of_their_segments(
    spark: Any, tmp_path: Path
) -> None:
    import pyarrow as pa

    from riverlock.connectors.base.stager import StagePoint
    from riverlock.connectors.builtin_stagers import TableStager
    from riverlock.connectors.spark_stream.landing import LandingReader
    from riverlock.core.hidden_columns import SEQ
    from riverlock.engines.jobs.frames.nodes import Frames
    from riverlock.program.graph import Read
    from riverlock.snapshot.format.channels import Channel, Segment
    from riverlock.snapshot.format.records import InputRange
    from riverlock.storage.open import open_storage

    storage = open_storage(str(tmp_path / "store"))
    channel = Channel(storage, "c")
    for number, rows in enumerate(([0], list(range(1, 2_000)))):
        at = StagePoint(
            storage=storage,
            folder=f"{channel.root}data/{number:012d}",
            epoch=number,
            attempt=f"a{number}",  # unique in a channel: files go by their names
        )
        files = TableStager(sink="landed").stage(pa.table({"value": rows}), at)
        channel.append(
            Segment(
                number=number,
                files=tuple(files),
                rows=len(rows),
                writer="w",
                step=number,
                schema="value bigint",
            )
        )
    source = rl.sources.spark_stream(
        lambda s: s.readStream.format("rate").load().select("value"), channel="c"
    )
    reader = LandingReader(spark, source, "in", storage, takes_all=False)
    node = Read(uid="in", source=source)
    span = InputRange(start={"segment": 0}, end={"segment": 2})
    frame = Frames(spark, {"in": reader}, {"in": span}, {}, {}).frame(node)

    first = frame.orderBy(SEQ).first()
    assert first is not None
    assert first.value == 0


@needs_spark
def test_available_now_takes_what_a_structured_stream_has(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("one\n")
    flow = rl.Flow("landed", key_groups=4)
    stream = rl.sources.spark_stream(
        lambda s: s.readStream.text(str(tmp_path / "in")), channel="c"
    )
    out = rl.sinks.memory()
    flow.read(stream, uid="in").write(out, uid="out")

    run(flow, tmp_path / "store", spark)

    assert out.rows() == [("one",)]
