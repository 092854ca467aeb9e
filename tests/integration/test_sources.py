"""Sources: each row exactly once, the same rows when read again."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.core.errors import InvalidConfigError, SourceError
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> Any:
    options = {"available_now": True, **options}
    return flow.run(str(store), spark=spark, **options)


def copy_flow(source: Any, out: Any, bad: Any = None) -> rl.Flow:
    flow = rl.Flow("copy")
    stream = flow.read(source, uid="in")
    stream.write(out, uid="out")
    if bad is not None:
        stream.bad.write(bad, uid="bad")
    return flow


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "text"])
def test_files_are_read_exactly_once_and_new_ones_are_found(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    schema = "value string" if kind == "text" else "value string, n bigint"
    folder = tmp_path / "in x[1]"
    options: dict[str, Any] = {"header": True} if kind == "csv" else {}

    def add(name: str, rows: list[tuple[str, int]]) -> None:
        folder.mkdir(exist_ok=True)
        target = folder / f"{name} é.{kind}"
        match kind:
            case "json":
                text = "".join(json.dumps({"value": v, "n": n}) + "\n" for v, n in rows)
            case "csv":
                text = "value,n\n" + "".join(f"{v},{n}\n" for v, n in rows)
            case "text":
                text = "".join(f"{v}\n" for v, _ in rows)
            case _:
                import pyarrow as pa
                import pyarrow.parquet as pq

                values = {"value": [v for v, _ in rows], "n": [n for _, n in rows]}
                pq.write_table(pa.table(values), target)
                return
        target.write_text(text)

    out = rl.sinks.memory()
    source = rl.sources.files(
        str(folder).replace("[1]", "*"), format=kind, schema=schema, **options
    )
    add("one", [("a", 1), ("b", 2)])
    add("two", [("c", 3)])
    run(copy_flow(source, out), tmp_path / "store", spark)
    add("three", [("d", 4)])
    run(copy_flow(source, out), tmp_path / "store", spark, max_rows_per_epoch=1)
    run(copy_flow(source, out), tmp_path / "store", spark)

    assert sorted(r[0] for r in out.rows()) == ["a", "b", "c", "d"]


def test_files_that_change_or_vanish_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    from riverlock.connectors.files.reading.reader import FilesReader
    from riverlock.snapshot.format.store_layout import RegionPaths

    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"n": 1}\n')
    source = rl.sources.files(str(folder), format="json", schema="n bigint")
    place = (open_storage(str(tmp_path / "store")), RegionPaths("main"))
    reader = FilesReader(spark, source, "in", place)
    start = reader.initial()
    end = reader.advance(start, reader.latest(start), 100)
    assert reader.read(start, end).count() == 1

    (folder / "a.json").write_text('{"n": 1}\n{"n": 2}\n')
    with pytest.raises(SourceError, match=r"a\.json has changed"):
        reader.read(start, end)
    (folder / "a.json").unlink()
    with pytest.raises(SourceError, match=r"a\.json is gone"):
        reader.read(start, end)


def test_the_list_of_files_moves_to_a_base_file_and_is_found_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    from riverlock.connectors.files.reading.reader import FilesReader
    from riverlock.snapshot.format.store_layout import RegionPaths

    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(700):
        (folder / f"{n:04d}.json").write_text(f'{{"n": {n}}}\n')
    source = rl.sources.files(str(folder), format="json", schema="n bigint")
    place = (open_storage(str(tmp_path / "store")), RegionPaths("main"))
    reader = FilesReader(spark, source, "in", place)
    offsets = [reader.initial()]
    while True:
        end = reader.advance(offsets[-1], reader.latest(offsets[-1]), 1_000_000)
        if end == offsets[-1]:
            break
        offsets.append(end)

    assert offsets[-1]["count"] == 700
    assert offsets[-1]["base"] is not None
    again = FilesReader(spark, source, "in", place)
    assert again.latest(offsets[-1]) == {"count": 700}
    names = [e[0] for s, e in pairwise(offsets) for e in again._between(s, e)]
    assert sorted(names) == sorted(str(p) for p in folder.iterdir())


def test_bad_rows_are_kept_out_and_offered(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"n": 1}\nnot json\n{"n": "x"}\n{"n": 2}\n')
    out, bad = rl.sinks.memory(), rl.sinks.memory()
    source = rl.sources.files(str(folder), format="json", schema="n bigint")

    status = run(copy_flow(source, out, bad), tmp_path / "store", spark)

    assert sorted(out.rows()) == [(1,), (2,)]
    assert sorted(r[1] for r in bad.rows()) == ["not json", '{"n": "x"}']
    assert all(r[0].endswith("a.json") for r in bad.rows())
    assert status.bad_rows == 2


def test_bad_rows_are_counted_even_if_nobody_reads_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("1\nx\n2\n")
    out = rl.sinks.memory()
    source = rl.sources.files(str(folder), format="csv", schema="n bigint")

    status = run(copy_flow(source, out), tmp_path / "store", spark)

    assert sorted(out.rows()) == [(1,), (2,)]
    assert status.bad_rows == 1


def test_bad_rows_are_counted_in_front_of_an_aggregate(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("1\nx\n2\n")
    (folder / "b.csv").write_text("2\ny\n2\n")
    out = rl.sinks.memory()
    source = rl.sources.files(str(folder), format="csv", schema="n bigint")
    flow = rl.Flow("sums")
    flow.read(source).key_by("n").agg(count="count(*)").write(out)

    status = run(flow, tmp_path / "store", spark)

    assert sorted(out.rows()) == [(1, 1), (2, 3)]
    assert status.bad_rows == 2


def test_bad_rows_can_stop_the_flow(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text("not json\n")
    source = rl.sources.files(
        str(folder), format="json", schema="n bigint", bad_rows="fail"
    )
    from riverlock.coordinator.restart import NoRestart

    with pytest.raises(rl.RiverlockError) as caught:
        run(
            copy_flow(source, rl.sinks.memory()),
            tmp_path / "store",
            spark,
            restart=NoRestart(),
        )
    assert "a.json" in str(caught.value)
    assert Catalog(open_storage(str(tmp_path / "store"))).epochs() == []


def test_generator_gives_the_same_rows_in_any_epochs(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = {"k": "pmod(xxhash64(id, seed), 7)", "n": "id"}
    source = rl.sources.generator(columns, rows=1000, seed=5)
    one, many = rl.sinks.memory(), rl.sinks.memory()

    run(copy_flow(source, one), tmp_path / "one", spark, max_rows_per_epoch=1000)
    run(copy_flow(source, many), tmp_path / "many", spark, max_rows_per_epoch=300)

    assert len(one.epochs) == 1
    assert len(many.epochs) == 4
    assert Counter(one.rows()) == Counter(many.rows())
    assert sorted(r[1] for r in one.rows()) == list(range(1000))


def test_rate_follows_the_clock_and_is_replayable(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    out = rl.sinks.memory()
    source = rl.sources.rate(10)

    run(copy_flow(source, out), tmp_path / "store", spark, clock=clock)
    assert out.rows() == []  # and the pace is not yet recorded: no epoch
    flow = copy_flow(source, out)
    handle = flow.start(str(tmp_path / "store"), spark=spark, clock=clock)

    def two_more_seconds_came() -> bool:
        # The pace counts from whenever the loop first looks at the clock.
        clock.advance("1 seconds")
        return len(out.rows()) >= 20

    wait_for(two_more_seconds_came)
    handle.stop()
    seen = len(out.rows())
    clock.advance("1 seconds")
    run(copy_flow(source, out), tmp_path / "store", spark, clock=clock)

    values = sorted(r[1] for r in out.rows())
    assert values == list(range(len(values)))
    assert len(values) % 10 == 0
    assert len(values) > seen >= 20
    stamps = [r[0] for r in sorted(out.rows(), key=lambda r: r[1])]
    assert (stamps[10] - stamps[0]).total_seconds() == 1.0


class Range(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class CounterReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        top = 100
        if hasattr(limit, "max_rows"):
            top = min(top, start["n"] + limit.max_rows)
        return {"n": top}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        middle = (start["n"] + end["n"]) // 2
        return [Range(start["n"], middle), Range(middle, end["n"])]

    def read(self, partition: Any) -> Any:
        return ((n, f"v{n}") for n in range(partition.start, partition.end))


class CounterSource(DataSource):
    def schema(self) -> str:
        return "n bigint, v string"

    def streamReader(self, schema: Any) -> CounterReader:
        return CounterReader()


class SimpleReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> Any:
        end = min(start["n"] + 10, 30)
        return iter(self._rows(start["n"], end)), {"n": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:
        return iter(self._rows(start["n"], end["n"]))

    def _rows(self, start: int, end: int) -> list[tuple[int, str]]:
        return [(n, f"v{n}") for n in range(start, end)]


class SimpleSource(DataSource):
    def schema(self) -> str:
        return "n bigint, v string"

    def simpleStreamReader(self, schema: Any) -> SimpleReader:
        return SimpleReader()


@pytest.mark.parametrize(("kind", "rows"), [(CounterSource, 100), (SimpleSource, 30)])
def test_any_python_data_source_can_be_read(
    spark: SparkSession, tmp_path: Path, kind: type, rows: int
) -> None:
    out = rl.sinks.memory()
    for _ in range(4):
        run(copy_flow(rl.sources.python(kind), out), tmp_path / "store", spark)

    assert sorted(out.rows()) == [(n, f"v{n}") for n in range(rows)]


def test_python_source_must_be_one() -> None:
    with pytest.raises(InvalidConfigError, match="DataSource"):
        rl.sources.python(int)


def test_a_structured_stream_is_landed_and_read_on_by_a_fork_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, store, fork = tmp_path / "in", tmp_path / "store", tmp_path / "fork"
    folder.mkdir()

    def build(session: SparkSession) -> Any:
        return session.readStream.format("text").load(str(folder))

    def rows(place: Path) -> list[str]:
        out = rl.sinks.memory()
        flow = copy_flow(rl.sources.spark_stream(build, channel="lines"), out)
        run(flow, place, spark)
        return sorted(row[0] for row in out.rows())

    (folder / "a.txt").write_text("one\ntwo\n")
    assert rows(store) == ["one", "two"]
    (folder / "b.txt").write_text("three\n")
    # The newest epoch is given again to a sink that has nothing yet.
    assert rows(store) == ["one", "three", "two"]

    rl.stores.fork(f"{store}@0", str(fork))
    (folder / "c.txt").write_text("four\n")
    assert rows(fork) == ["four", "three"]
    assert rows(store) == ["four", "three"]
    assert all(rl.stores.verify(str(s)).is_whole for s in (store, fork))


def test_a_socket_becomes_replayable(spark: SparkSession, tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    def serve() -> None:
        for text in (b"a b\n", b"b c\n"):
            connection, _ = server.accept()
            connection.sendall(text)
            held.append(connection)

    held: list[socket.socket] = []
    threading.Thread(target=serve, daemon=True).start()
    out = rl.sinks.memory()

    def words() -> rl.Flow:
        flow = rl.Flow("words")
        lines = flow.read(rl.sources.socket("127.0.0.1", port))
        parts = lines.flat_map(lambda r: [(w,) for w in r.value.split()], "word string")
        parts.key_by("word").running_count(uid="count").write(out)
        return flow

    for total in (2, 4):
        handle = words().start(str(tmp_path / "store"), spark=spark)
        wait_for(lambda t=total: len(out.rows()) == t)
        handle.stop()
        held.pop().close()
    server.close()

    assert sorted(out.rows()) == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]


def wait_for(condition: Any, seconds: float = 250) -> None:
    """Wait for progress, not for time; says what it waited for when it gives up."""
    event = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        event.wait(0.05)
    raise TimeoutError(condition)
