"""Rows that several outputs of an epoch get come from one evaluation."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.core.times import from_micros
from riverlock.engines.running import check
from riverlock.flow.inside import program_of
from riverlock.snapshot.catalog import Catalog
from riverlock.stages.compiled import KeyedStage, WriteStage
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SCHEMA = "k string, i int, at timestamp"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Eight records in two files; the second has one that comes too late."""
    place = tmp_path / "in"
    place.mkdir()
    for number in range(2):
        rows = [
            f'{{"k":"{"ab"[i % 2]}","i":{i},"at":"2026-01-01T0{number * 5}:00:0{i}Z"}}'
            for i in range(number * 4, number * 4 + 4)
        ]
        late = ['{"k":"a","i":99,"at":"2025-12-31T00:00:00Z"}'] if number else []
        file = place / f"{number}.json"
        file.write_text("\n".join(rows + late) + "\n")
        os.utime(file, (1_000 + number, 1_000 + number))
    return str(place)


def records_of(flow: rl.Flow, folder: str) -> Any:
    source = rl.sources.files(folder, format="json", schema=SCHEMA)
    return flow.read(source, uid="in")


def run(flow: rl.Flow, store: Path, spark: SparkSession, **options: Any) -> Any:
    return flow.run(str(store), spark=spark, available_now=True, **options)


class Keep(rl.Process):
    """Gives each record with what was made up for it, and keeps it."""

    output = "i int, id string"
    ids = rl.Map("int", "string")

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.ids[e.i] = e.id
        yield e.i, e.id


def once_in(path: Path) -> Callable[[Any], bool]:
    """Return a function that says whether it sees a record for the first time."""

    def is_first(record: Any) -> bool:
        try:
            (path / str(record.i)).mkdir(parents=True)
        except FileExistsError:
            return False
        return True

    return is_first


def test_sinks_and_operators_behind_one_step_see_the_same_rows(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    first, second, kept, again, twice = (rl.sinks.memory() for _ in range(5))
    flow = rl.Flow("ids")
    made = records_of(flow, folder).with_column("id", "uuid()").select("k", "i", "id")
    made.write(first, uid="first").write(second, uid="second")
    made.key_by("k").process(Keep(), uid="keep").write(kept, uid="kept")
    made.key_by("i").process(Keep(), uid="again").write(again, uid="again-out")
    made.union(made.where("i < 2")).write(twice, uid="twice")

    run(flow, tmp_path / "store", spark, max_rows_per_epoch=4)

    expected = Counter((i, id) for _, i, id in first.rows())
    assert len({i for i, _ in expected}) == len(expected) == 9
    assert Counter((i, id) for _, i, id in second.rows()) == expected
    assert Counter(kept.rows()) == expected
    assert Counter(again.rows()) == expected
    few = Counter({row: 1 for row in expected if row[0] < 2})
    assert Counter((i, id) for _, i, id in twice.rows()) == expected + few


@pytest.mark.parametrize("fails", ["first", "second"])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_record_is_a_result_or_a_dead_letter(
    spark: SparkSession, tmp_path: Path, folder: str, fails: str, keyed: bool
) -> None:
    is_first = once_in(tmp_path / "marks")

    def enrich(record: Any) -> Any:
        if is_first(record) == (fails == "first") and record.i == 3:
            raise TimeoutError
        return record.k, record.i, f"#{record.i}"

    out, dead = rl.sinks.memory(), rl.sinks.memory()
    flow = rl.Flow("flaky")
    mapped = records_of(flow, folder).map(
        enrich, "k string, i int, id string", uid="m", on_error=dead
    )
    if keyed:
        mapped.key_by("k").process(Keep(), uid="keep").write(out, uid="out")
    else:
        mapped.select("i", "id").write(out, uid="out")

    status = run(flow, tmp_path / "store", spark)

    found = sorted([*(i for i, _ in out.rows()), *(3 for _ in dead.rows())])
    assert found == [*range(8), 99]
    assert status.dead_letters == len(dead.rows())


def test_functions_are_called_once_for_each_record_of_an_epoch(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    calls = tmp_path / "calls"

    def noted(record: Any) -> bool:
        with calls.open("a") as file:
            file.write(f"{record.i}\n")
        return bool(record.i != 1)

    flow = rl.Flow("calls")
    kept = records_of(flow, folder).filter(noted, uid="f", on_error=rl.sinks.memory())
    kept.write(rl.sinks.memory(), uid="a")
    kept.where("i > 2").write(rl.sinks.memory(), uid="b")
    kept.key_by("k").count(uid="n").write(rl.sinks.memory(), uid="c")

    run(flow, tmp_path / "store", spark)

    assert sorted(map(int, calls.read_text().split())) == [*range(8), 99]


def test_a_row_of_the_wrong_type_is_a_dead_letter_of_its_record(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    def wrong(record: Any) -> Any:
        return {1: "x", 2: 2**40, 5: None}.get(record.i, record.i), f"#{record.i}"

    def several(record: Any) -> Any:
        yield record.i, "good"
        yield ("x" if record.i == 4 else -record.i), "also good"

    flow = rl.Flow("types")
    out, dead, many, dead_many = (rl.sinks.memory() for _ in range(4))
    records = records_of(flow, folder)
    records.map(wrong, "i int, id string", uid="m", on_error=dead).write(out, uid="o")
    records.flat_map(several, "i int, id string", uid="fm", on_error=dead_many).write(
        many, uid="many"
    )

    run(flow, tmp_path / "store", spark)

    assert sorted(i for i, _ in out.rows() if i is not None) == [0, 3, 4, 6, 7, 99]
    assert [id for i, id in out.rows() if i is None] == ["#5"]
    letters = {row[5].split("i=")[1][0]: row[3] for row in dead.rows()}
    assert sorted(letters) == ["1", "2"]
    assert "column 'i' needs int, got 'x'" in letters["1"]
    # What the record gave before is taken back.
    assert 4 not in [abs(i) for i, _ in many.rows()]
    assert len(many.rows()) == 16
    ((operator, *_, record),) = dead_many.rows()
    assert operator == "fm"
    assert "i=4" in record


def test_what_a_window_leaves_out_and_what_it_takes_are_all_rows(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    is_first = once_in(tmp_path / "marks")

    def enrich(record: Any) -> Any:
        # In a second evaluation all rows would be late.
        return record.k, record.i, record.at if is_first(record) else LONG_AGO

    late = rl.sinks.memory()
    totals = rl.sinks.memory()
    flow = rl.Flow("late")
    stream = records_of(flow, folder).map(enrich, SCHEMA, uid="m").event_time("at")
    counted = (
        stream.key_by("k").window(rl.tumbling("1 hour")).agg(n="count(*)", uid="w")
    )
    counted.write(totals, uid="out", mode="update")
    counted.late.write(late, uid="late")

    run(flow, tmp_path / "store", spark, max_rows_per_epoch=4)

    assert [(k, i) for k, i, _ in late.rows()] == [("a", 99)]
    newest = {row[:2]: row[-1] for row in totals.rows()}
    assert sum(newest.values()) == 8


@pytest.mark.parametrize("transformed", [True, False])
def test_now_is_the_time_of_the_epoch(
    spark: SparkSession, tmp_path: Path, folder: str, transformed: bool
) -> None:
    flow = rl.Flow("now")
    a, b, c = (rl.sinks.memory() for _ in range(3))
    records = records_of(flow, folder)
    if transformed:
        timed = records.transform(lambda f: f.withColumn("t", F.current_timestamp()))
    else:
        timed = records.with_column("t", "now()")
    local = "localtimestamp() = cast(now() AS timestamp_ntz) AS h"
    timed.select("i", "t", "current_date() AS d", local).write(a, uid="a")
    timed.where("t = current_timestamp()").select("i", "t").write(b, uid="b")
    timed.key_by("k").agg(t="max(t)", n="count_if(t = now())", uid="g").write(c)
    store = tmp_path / "store"

    run(flow, store, spark, max_rows_per_epoch=4)

    catalog = Catalog(open_storage(str(store)))
    times = [from_micros(catalog.manifest(e).now_us) for e in catalog.epochs()]
    assert len(times) == 2
    found = {i: t.astimezone(UTC) for i, t, *_ in a.rows()}
    assert found == {i: times[i >= 4] for i in (*range(8), 99)}
    assert {(d, h) for _, _, d, h in a.rows()} == {(t.date(), True) for t in times}
    assert {i: t.astimezone(UTC) for i, t in b.rows()} == found
    assert {t.astimezone(UTC) for _, t, _ in c.rows()} == set(times)
    assert sum(n for *_, n in c.rows()[-2:]) == 9
    assert flow.replay(str(store), 1, spark=spark).matches


def test_a_task_that_dies_leaves_nothing_of_its_rows(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    is_first = once_in(tmp_path / "marks")

    def enrich(record: Any) -> Any:
        if is_first(record) and record.i == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return record.i, os.urandom(8).hex()

    flow = rl.Flow("dies")
    a, b = rl.sinks.memory(), rl.sinks.memory()
    mapped = records_of(flow, folder).map(enrich, "i int, id string", uid="m")
    mapped.write(a, uid="a")
    mapped.where("i > 0").write(b, uid="b")

    run(flow, tmp_path / "store", spark)

    assert sorted(i for i, _ in a.rows()) == [*range(8), 99]
    assert Counter(b.rows()) == Counter(row for row in a.rows() if row[0] > 0)


def shared(flow: rl.Flow, spark: SparkSession) -> int:
    """Return how many steps are evaluated once and stored for later stages."""
    stages = check(program_of(flow), spark=spark)[0].stages
    writes = [s for s in stages if isinstance(s, WriteStage)]
    return sum(t.is_staged for s in writes for t in s.targets.values())


def upper(k: str) -> str:
    return k.upper()


@pytest.mark.parametrize(
    ("step", "is_stored"),
    [
        (lambda s: s, False),
        (lambda s: s.where("i > 0").with_column("j", "i + 1"), False),
        (lambda s: s.select("*", F.col("i").alias("j")), False),
        (lambda s: s.with_column("t", "now()"), False),
        (lambda s: s.event_time("at").union(s.event_time("at")), False),
        (lambda s: s.with_column("j", "rand()"), True),
        (lambda s: s.where("rand() < 2").where("i > 0"), True),
        (lambda s: s.with_column("j", F.udf(upper)("k")), True),
        (lambda s: s.map(lambda r: r, SCHEMA), True),
        (lambda s: s.transform(lambda frame: frame), True),
        (
            lambda s: s.join_static(
                lambda spark: spark.createDataFrame([("a", 1)], "k string, x int"),
                on="k",
            ),
            True,
        ),
    ],
)
def test_what_spark_surely_computes_again_is_not_stored(
    spark: SparkSession, folder: str, step: Any, is_stored: bool
) -> None:
    flow = rl.Flow("stored")
    stream = step(records_of(flow, folder))
    stream.select("k").write(rl.sinks.memory(), uid="a")
    stream.key_by("k").count(uid="n").write(rl.sinks.memory(), uid="b")

    assert shared(flow, spark) == is_stored


def test_steps_that_one_stage_reads_are_not_stored(
    spark: SparkSession, folder: str
) -> None:
    flow = rl.Flow("alone")
    mapped = records_of(flow, folder).map(lambda r: r, SCHEMA)
    mapped.with_column("id", "uuid()").write(rl.sinks.memory()).write(rl.sinks.memory())

    assert shared(flow, spark) == 0
    (stage,) = check(program_of(flow), spark=spark)[0].stages
    assert len(stage.targets["main"].sinks) == 2


def test_only_what_can_be_known_before_its_epoch_is_read_ahead(
    spark: SparkSession,
) -> None:
    def ahead(**columns: str) -> list[bool]:
        flow = rl.Flow("ahead")
        source = rl.sources.generator({"k": "id % 7", **columns}, rows=10)
        stream = flow.read(source, uid="in")
        stream.key_by("k").count(uid="a").write(rl.sinks.memory())
        stream.where("k > 1").key_by("k").count(uid="b").write(rl.sinks.memory())
        stages = check(program_of(flow), spark=spark)[0].stages
        return [s.can_read_ahead for s in stages if isinstance(s, KeyedStage)]

    assert ahead(n="id") == [True, True]
    assert ahead(n="now()") == [False, False]
    # Its rows are stored for both, by a stage of the epoch itself.
    assert ahead(n="uuid()") == [False, False]


def test_a_gap_by_chance_has_no_late_records(spark: SparkSession, folder: str) -> None:
    flow = rl.Flow("gap")
    sessions = rl.sessions(gap_expr="rand() * 10")
    counted = (
        records_of(flow, folder)
        .event_time("at")
        .key_by("k")
        .window(sessions)
        .agg(n="count(*)", uid="s")
    )
    counted.late.write(rl.sinks.memory(), uid="late")

    with pytest.raises(InvalidFlowError, match="gap_expr"):
        flow.check(spark=spark)
