"""Uids that nobody has given follow the order of the code; state does not follow it."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.cli import main
from riverlock.core.errors import InvalidConfigError
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

APP = """\
import riverlock as rl


class Small(rl.Process):
    output = "k long, n long"
    n = rl.Value("long", default=0)

    def on_event(self, row, ctx):
        self.n += 1
        yield row.k, self.n


class Large(Small):
    def on_event(self, row, ctx):
        self.n += 1000
        yield row.k, self.n


def build(is_reordered: bool, rows: int, small=None, large=None) -> rl.Flow:
    flow = rl.Flow("two")
    source = rl.sources.generator({"k": "id % 3"}, rows=rows)
    stream = flow.read(source, uid="numbers").key_by("k")
    works = [(Small(), small), (Large(), large)]
    for process, uid in reversed(works) if is_reordered else works:
        stream.process(process, uid=uid)
    return flow


def first() -> rl.Flow:
    return build(False, 30)


def reordered() -> rl.Flow:
    return build(True, 60)


def named() -> rl.Flow:
    return build(True, 60, small="process-1", large="process-2")
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Path]:
    path, modules = list(sys.path), set(sys.modules)
    (tmp_path / "uids_app.py").write_text(APP)
    yield tmp_path / "uids_app.py"
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "uids_app" in name:
            del sys.modules[name]


@pytest.mark.spark
def test_operators_that_changed_places_do_not_take_each_others_state(
    spark: SparkSession, app: Path, tmp_path: Path
) -> None:
    store = str(tmp_path / "store")

    def cli(verb: str, flow: str, *more: str) -> Any:
        words = [verb, f"{app}:{flow}", "--store", store, *more]
        return CliRunner().invoke(main, words)

    assert cli("run", "first", "--available-now").exit_code == 0
    catalog = Catalog(open_storage(store))
    claimed = catalog.newest_run()

    refused = cli("check", "reordered")
    stopped = cli("run", "reordered", "--available-now")

    for done in (refused, stopped):
        assert done.exit_code == 1
        said = " ".join(done.output.split())
        assert "'process-1' stands for operator Large by k" in said
        assert "which was 'process-2'" in said
        assert 'uid="process-1" for operator Small by k' in said
    assert catalog.newest_run() == claimed

    # As the refusal says: each has the uid that it had.
    assert cli("check", "named").exit_code == 0
    assert cli("run", "named", "--available-now").exit_code == 0
    state = {
        uid: CliRunner().invoke(main, ["state", store, uid, "n", "--json"])
        for uid in ("process-1", "process-2")
    }
    counts = {u: json.loads(s.stdout)["rows"][0]["n"] for u, s in state.items()}
    assert counts == {"process-1": 20, "process-2": 20_000}


@pytest.mark.spark
def test_check_says_whose_state_hangs_on_the_order(
    spark: SparkSession, app: Path
) -> None:
    found = CliRunner().invoke(main, ["check", f"{app}:first", "--json"])
    shown = CliRunner().invoke(main, ["check", f"{app}:first"])

    generated = json.loads(found.stdout)["generated"]
    lines = [each.pop("line") for each in generated]
    assert generated == [
        {"uid": f"process-{n}", "of": of, "write": f'uid="process-{n}"'}
        for n, of in (
            (1, "operator Small by k of numbers"),
            (2, "operator Large by k of numbers"),
        )
    ]
    assert all(line.startswith(f"{app}:") for line in lines)
    assert 'uid="process-2"' in shown.output


def test_a_start_says_which_uids_to_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow = rl.Flow("told")
    numbers = flow.read(rl.sources.generator({"k": "id"}, rows=5), uid="numbers")
    numbers.key_by("k").count().write(rl.sinks.memory(), uid="out")

    flow.run(str(tmp_path / "store"), execution="local", available_now=True)

    (told,) = [
        text
        for text in map(logging.LogRecord.getMessage, caplog.records)
        if 'uid="count-1"' in text
    ]
    assert 'uid="count-1" for operator Count by k of numbers, at ' in told
    assert f"{__file__}:" in told
    assert 'numbers.key_by("k").count()' in told


@pytest.mark.spark
def test_sources_that_changed_places_do_not_take_each_others_offsets(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, store = rl.sinks.memory(), str(tmp_path / "store")

    def flow_of(*columns: str) -> rl.Flow:
        flow = rl.Flow("two")
        for column in columns:
            source = rl.sources.generator({"k": column}, rows=5)
            flow.read(source).write(out, uid=f"out-{len(column)}")
        return flow

    some: dict[str, Any] = {"spark": spark, "available_now": True, "parallelism": 1}
    flow_of("id", "id + 100").run(store, **some)

    with pytest.raises(InvalidConfigError, match="generator-1") as caught:
        flow_of("id + 100", "id").run(store, **some)
    assert 'uid="generator-1" for source generator k: id' in caught.value.hint
