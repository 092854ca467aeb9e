"""Starting, stopping, fencing, keeping house."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pytest

import riverlock as rl
from riverlock.core.errors import FencedError, InvalidConfigError, StateSchemaError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format import merged_files
from riverlock.snapshot.retention.compaction import MAX_SPANS
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.open import open_storage

ENGINE: Final = "local"


class Total(rl.Process):
    output = "k bigint, total bigint"
    total = rl.Value("bigint", default=0)

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.total += e.n
        yield e.k, self.total


def totals(out: Any, rows: int = 100_000, **more: Any) -> rl.Flow:
    flow = rl.Flow("totals", key_groups=8)
    numbers = flow.read(rl.sources.generator({"n": "id"}, rows=rows, **more))
    stream = numbers.map(lambda r: (r.n % 10, r.n), "k bigint, n bigint")
    stream.key_by("k").process(Total(), uid="total").write(out, uid="out")
    return flow


def catalog(store: Path) -> Catalog:
    return Catalog(open_storage(str(store)))


def wait_for(condition: Any, seconds: float = 250) -> None:
    event = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        event.wait(0.05)
    raise TimeoutError(condition)


def test_a_handle_shows_stops_and_pins(tmp_path: Path) -> None:
    out = rl.sinks.memory()
    flow = totals(out, rows=10_000_000, rows_per_second=2000)
    handle = flow.start(str(tmp_path), execution=ENGINE)
    wait_for(lambda: (handle.status().epoch or 0) >= 2)
    named = handle.savepoint("v1")
    wait_for(lambda: (handle.status().epoch or 0) > named.regions["main"])
    with pytest.raises(InvalidConfigError, match="v1"):
        handle.stop(savepoint="v1")
    assert handle.is_active
    handle.stop(savepoint="last")

    assert (handle.is_active, handle.status().state) == (False, "stopped")
    epochs = catalog(tmp_path).epochs()
    assert epochs == list(range(epochs[-1] + 1))
    assert catalog(tmp_path).resolve("v1").epoch == named.regions["main"]
    assert catalog(tmp_path).resolve("last").epoch == epochs[-1]
    with pytest.raises(InvalidConfigError, match="v1"):
        catalog(tmp_path).pin("v1", epoch=0, now_us=0)


def test_a_second_driver_is_refused_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slowly the owner's heart beats here; a beat ends the wait.
    monkeypatch.setattr("riverlock.snapshot.claims._PATIENCE_SECONDS", 250)
    first = totals(rl.sinks.memory(), rows=10_000_000, rows_per_second=1000)
    handle = first.start(str(tmp_path), execution=ENGINE)
    wait_for(lambda: handle.status().epoch is not None)

    with pytest.raises(FencedError) as caught:
        totals(rl.sinks.memory(), rows=10_000_000, rows_per_second=1000).run(
            str(tmp_path), execution=ENGINE
        )

    assert "process" in str(caught.value)
    assert handle.is_active
    handle.stop()
    assert {catalog(tmp_path).manifest(e).run for e in catalog(tmp_path).epochs()} == {
        1
    }


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("jobs", marks=pytest.mark.spark)]
)
def test_a_newer_run_fences_the_older_one_within_seconds(
    engine: Literal["local", "jobs"], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    from riverlock.snapshot.format.records import Run

    # On Spark, what it runs is cancelled.
    spark = request.getfixturevalue("spark") if engine == "jobs" else None
    handle = totals(rl.sinks.memory(), rows=10_000_000, rows_per_second=1000).start(
        str(tmp_path), execution=engine, spark=spark
    )
    wait_for(lambda: handle.status().epoch is not None)
    newer = Run(run=2, host="elsewhere", pid=1, token="t", started_us=0)
    assert catalog(tmp_path).claim(newer)

    with pytest.raises(FencedError, match="run 2"):
        handle.wait(timeout=250)  # an epoch that is under way comes to its end


def test_files_stay_bounded_and_history_is_swept(
    tmp_path: Path,
) -> None:
    out = rl.sinks.memory()
    totals(out, rows=3000).run(
        str(tmp_path),
        execution=ENGINE,
        available_now=True,
        max_rows_per_epoch=60,
        retain_epochs=5,
        grace="0 seconds",
        parallelism=2,
    )

    newest = catalog(tmp_path).resolve(None)
    spans = {(f.first_epoch, f.last_epoch) for f in newest.operators["total"].files}
    assert newest.epoch == 49
    assert len(spans) <= 2 * MAX_SPANS  # compaction runs beside the loop
    assert any(last > first for first, last in spans)
    sweep(catalog(tmp_path), Retention(epochs=5, grace=timedelta(0)))
    assert catalog(tmp_path).epochs() == [45, 46, 47, 48, 49]
    assert all(r.is_whole for r in verify(catalog(tmp_path)))
    named = {
        f.path
        for e in catalog(tmp_path).epochs()
        for f in catalog(tmp_path).manifest(e).operators["total"].files
    }
    # A merge that ended after the last epoch waits for the next run.
    waiting = {f.path for _, m in merged_files.waiting(catalog(tmp_path)) for f in m.by}
    kept = {e.path for e in catalog(tmp_path).storage.list("regions/main/state")}
    assert kept == named | waiting
    final = dict(out.rows())
    assert final == {k: sum(range(k, 3000, 10)) for k in range(10)}


def test_a_store_belongs_to_one_flow_and_its_key_groups(
    tmp_path: Path,
) -> None:
    totals(rl.sinks.memory(), rows=10).run(
        str(tmp_path), execution=ENGINE, available_now=True
    )
    other = rl.Flow("other")
    other.read(rl.sources.generator({"n": "id"}, rows=1)).write(rl.sinks.memory())
    groups = rl.Flow("totals", key_groups=9)
    groups.read(rl.sources.generator({"n": "id"}, rows=1)).write(rl.sinks.memory())

    with pytest.raises(InvalidConfigError, match="flow 'totals'"):
        other.run(str(tmp_path), execution=ENGINE, available_now=True)
    with pytest.raises(InvalidConfigError, match="fixed when the store was made"):
        groups.run(str(tmp_path), execution=ENGINE, available_now=True)


class TextTotal(rl.Process):
    output = "x int"
    total = rl.Value("string")

    def on_event(self, e: Any, ctx: Any) -> None:
        self.total = "x"


class ExpiringTotal(rl.Process):
    output = "x int"
    total = rl.Value("bigint", ttl="1 hour")

    def on_event(self, e: Any, ctx: Any) -> None:
        self.total = 1


class WiderTotal(Total):
    extra = rl.Value("string", default="none")


def test_changed_state_is_refused_added_state_is_not(
    tmp_path: Path,
) -> None:
    totals(rl.sinks.memory(), rows=100).run(
        str(tmp_path), execution=ENGINE, available_now=True
    )

    def changed(process: rl.Process) -> rl.Flow:
        flow = rl.Flow("totals", key_groups=8)
        numbers = flow.read(rl.sources.generator({"n": "id"}, rows=200))
        stream = numbers.map(lambda r: (r.n % 10, r.n), "k bigint, n bigint")
        stream.key_by("k").process(process, uid="total").write(out)
        return flow

    out = rl.sinks.memory()
    for process in (TextTotal(), ExpiringTotal()):
        with pytest.raises(StateSchemaError, match="total: key value of"):
            changed(process).run(str(tmp_path), execution=ENGINE, available_now=True)
    changed(WiderTotal()).run(str(tmp_path), execution=ENGINE, available_now=True)

    assert dict(out.rows()) == {k: sum(range(k, 200, 10)) for k in range(10)}


@pytest.mark.parametrize("name", ["parallelism", "max_rows_per_epoch", "max_epochs"])
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, name: str) -> None:
    none: dict[str, Any] = {name: 0}
    with pytest.raises(InvalidConfigError, match=name):
        totals(rl.sinks.memory()).run(str(tmp_path), execution=ENGINE, **none)
