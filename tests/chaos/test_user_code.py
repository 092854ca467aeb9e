"""Poison records, broken programs, hot keys and large values: rows 40 to 43."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos import oracle, worker_flow
from tests.chaos.worker_flow import Options

import riverlock as rl
from riverlock.coordinator.restart import FixedDelay
from riverlock.core.errors import (
    EpochAbortedError,
    InvalidFlowError,
    StateTypeError,
    UserCodeError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.state_reader import read_entries, read_variable
from riverlock.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.chaos


@pytest.fixture(autouse=True)
def _by_value() -> Any:
    import sys

    from pyspark import cloudpickle

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


class Poisoned(rl.Process):
    output = "key string, n long"
    n = rl.Value("long", default=0)
    seen = rl.List("long")

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.seen.append(row.id)
        ctx.set_timer(ctx.now + rl.hours(1), processing=True)
        if row.id == 777:
            raise ValueError("this row is poison")
        yield row.key, self.n


def _numbers(flow: rl.Flow, rows: int) -> rl.Stream:
    columns = {"id": "id", "key": "concat('k', id % 10)"}
    source = rl.sources.generator(columns, rows=rows)
    return flow.read(source, uid="numbers")


def _numbers_here(
    flow: rl.Flow, rows: int, key: Callable[[int], str] = lambda n: f"k{n % 10}"
) -> rl.Stream:
    """Return the same without Spark."""
    numbers = flow.read(rl.sources.generator({"id": "id"}, rows=rows), uid="numbers")
    return numbers.map(lambda r: (r.id, key(r.id)), "id long, key string", uid="keys")


def _state(store: Path, operator: str, variable: str) -> list[tuple[Any, ...]]:
    catalog = Catalog(LocalStorage(store))
    manifest = catalog.newest()
    assert manifest is not None
    state = manifest.operators[operator]
    entries = read_entries(catalog.storage, state, now_us=manifest.now_us)
    table = read_variable(entries, state, variable)
    return [tuple(r.values()) for r in table.to_pylist()]


@pytest.mark.spark
def test_poison_record_fails_its_epoch_and_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow, sink = rl.Flow("poison"), rl.sinks.memory()
    _numbers(flow, 1_000).key_by("key").process(Poisoned(), uid="count").write(sink)

    with pytest.raises(UserCodeError) as caught:
        flow.run(str(tmp_path), spark=spark, available_now=True, max_rows_per_epoch=300)

    error: Any = caught.value
    assert (error.operator, error.key, error.epoch) == ("count", "k7", 2)
    assert "ValueError: this row is poison" in str(error)
    assert "test_user_code.py" in error.line
    assert "777" in error.record
    # Everything before is committed, nothing of the epoch is.
    assert sorted(sink.epochs) == [0, 1]
    assert len(sink.rows()) == 600
    assert sum(n for _, n in _state(tmp_path, "count", "n")) == 600


def test_poison_record_goes_to_the_dead_letters_without_a_trace(
    tmp_path: Path,
) -> None:
    flow, sink, dead = rl.Flow("poison"), rl.sinks.memory(), rl.sinks.memory()
    keyed = _numbers_here(flow, 1_000).key_by("key")
    keyed.process(Poisoned(), uid="count", on_error=dead).write(sink)

    flow.run(
        str(tmp_path),
        execution="local",
        parallelism=2,
        available_now=True,
        max_rows_per_epoch=300,
    )

    assert len(sink.rows()) == 999
    (letter,) = dead.rows()
    operator, key, epoch, error, line, record = letter
    assert (operator, epoch) == ("count", 2)
    assert "k7" in key
    assert "this row is poison" in error
    assert "test_user_code.py" in line
    assert "777" in record
    assert dict(_state(tmp_path, "count", "n"))["k7"] == 99
    seen = [row[-1] for row in _state(tmp_path, "count", "seen")]
    assert sorted(seen) == [n for n in range(1_000) if n != 777]


class Unpicklable(rl.Process):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def on_event(self, row: Any, ctx: Any) -> None:
        pass


@pytest.mark.spark
def test_process_that_cannot_be_sent_is_refused_before_anything_is_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = rl.Flow("broken")
    _numbers(flow, 10).key_by("key").process(Unpicklable(), uid="bad")

    with pytest.raises(InvalidFlowError, match="open"):
        flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert not (tmp_path / "store").exists()


class Dies(rl.Process):
    def on_event(self, row: Any, ctx: Any) -> None:
        import os

        os._exit(3)


@pytest.mark.spark
def test_worker_that_always_dies_ends_the_run_after_a_bounded_number_of_tries(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = rl.Flow("broken")
    _numbers(flow, 10).key_by("key").process(Dies(), uid="bad")

    with pytest.raises(EpochAbortedError) as caught:
        flow.run(
            str(tmp_path / "store"),
            spark=spark,
            available_now=True,
            parallelism=1,
            restart=FixedDelay(delay_us=1_000, attempts=1),
        )

    assert caught.value.epoch == 0
    assert Catalog(LocalStorage(tmp_path / "store")).epochs() == []


class WrongType(rl.Process):
    n = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: Any) -> None:
        self.n = "text"


@pytest.mark.spark
def test_value_of_the_wrong_type_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = rl.Flow("broken")
    _numbers(flow, 10).key_by("key").process(WrongType(), uid="bad")

    with pytest.raises(StateTypeError) as caught:
        flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert (caught.value.operator, caught.value.variable) == ("bad", "n")


@pytest.mark.spark
def test_hot_key_with_nine_tenths_of_the_rows_is_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = Options(
        store=str(tmp_path / "store"),
        out=str(tmp_path / "out"),
        rows=20_000,
        epoch_rows=10_000,
        hot=1,
    )

    worker_flow.run(options, spark=spark)

    oracle.check(options)


class Fat(rl.Process):
    output = "key string, size long"
    blob = rl.Value("binary")
    parts = rl.Map("string", "binary")

    def __init__(self, size: int) -> None:
        self.size = size

    def on_event(self, row: Any, ctx: Any) -> Any:
        before = -1 if self.blob is None else len(self.blob)
        self.blob = bytes([row.id % 251]) * self.size
        self.parts["p" * 600] = self.blob[:100]
        yield row.key, before


@pytest.mark.parametrize(
    "size",
    [512 << 10, 16 << 20, pytest.param(64 << 20, marks=pytest.mark.slow)],
)
def test_large_values_and_long_keys_are_kept(tmp_path: Path, size: int) -> None:
    flow, sink = rl.Flow("fat"), rl.sinks.memory()
    rows = _numbers_here(flow, 4, key=lambda n: f"k{n % 2}" * 1000)
    rows.key_by("key").process(Fat(size), uid="fat").write(sink)

    for _ in range(2):
        flow.run(
            str(tmp_path),
            execution="local",
            parallelism=2,
            available_now=True,
            max_rows_per_epoch=2,
            max_epochs=1,
        )

    assert sorted(n for _, n in sink.rows()) == [-1, -1, size, size]
    stored = dict(_state(tmp_path, "fat", "blob"))
    assert {len(k) for k in stored} == {2_000}
    assert sorted(stored.values()) == [bytes([n]) * size for n in (2, 3)]
    assert {(len(k), len(v)) for _, k, v in _state(tmp_path, "fat", "parts")} == {
        (600, 100)
    }


@pytest.mark.spark
@pytest.mark.slow
def test_a_million_keys_in_one_group_are_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = Options(
        store=str(tmp_path / "store"),
        out=str(tmp_path / "out"),
        rows=1_000_000,
        keys=1_000_000,
        key_groups=1,
        epoch_rows=250_000,
        parallelism=1,
    )

    worker_flow.run(options, spark=spark)

    oracle.check(replace(options))
