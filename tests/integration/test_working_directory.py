"""A start from another directory is told as such, before it makes anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.cli import main
from riverlock.core.errors import InvalidConfigError, SourceError

pytestmark = pytest.mark.spark


def flow_of(source: str, out: str) -> rl.Flow:
    flow = rl.Flow("shop")
    rows = flow.read(rl.sources.files(source, format="text"), uid="orders")
    rows.write(rl.sinks.files(out, format="json"), uid="out")
    return flow


def test_a_start_from_elsewhere(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, away, store = tmp_path / "home", tmp_path / "away", str(tmp_path / "store")
    away.mkdir()
    (home / "in").mkdir(parents=True)
    (home / "in/a.txt").write_text("one\n")
    some: dict[str, Any] = {"spark": spark, "available_now": True, "parallelism": 1}
    monkeypatch.chdir(home)
    flow_of("in/", "out").run(store, **some)

    monkeypatch.chdir(away)
    with pytest.raises(SourceError) as caught:
        flow_of("in/", "out").run(store, **some)
    assert f"'in/' means {away}/in here, and meant {home}/in" in caught.value.message
    assert f"start it in {home}" in caught.value.hint
    with pytest.raises(InvalidConfigError) as refused:
        flow_of(f"{home}/in", "out").run(store, **some)
    assert f"{home}/out, as when the flow last ran" in str(refused.value)
    # Another store, too, as of a path that is not absolute.
    with pytest.raises(InvalidConfigError, match="another store") as foreign:
        flow_of(f"{home}/in", f"{home}/out").run("store", **some)
    assert "remove" not in foreign.value.hint
    assert list(away.iterdir()) == []

    flow_of(f"{home}/in", f"{home}/out").run(store, **some)
    assert len(list((home / "out").glob("epoch=*"))) == 1


def test_output_that_moved_with_its_directory_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, source = str(tmp_path / "store"), tmp_path / "in"
    source.mkdir()
    (source / "a.txt").write_text("one\n")
    some: dict[str, Any] = {"spark": spark, "available_now": True, "parallelism": 1}
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path / "old")
    flow_of(str(source), "out").run(store, **some)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    (source / "b.txt").write_text("two\n")
    flow_of(str(source), "out").run(store, **some)

    assert len(list((tmp_path / "new/out").glob("epoch=*"))) == 2


def test_check_tells_what_a_start_would(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, away, store = tmp_path / "home", tmp_path / "away", str(tmp_path / "store")
    for folder in (home / "in", away / "in"):
        folder.mkdir(parents=True)
    (home / "in/a.txt").write_text("one\n")
    (tmp_path / "app.py").write_text(
        "import riverlock as rl\n"
        "flow = rl.Flow('shop')\n"
        "rows = flow.read(rl.sources.files('in', format='text'), uid='orders')\n"
        "rows.write(rl.sinks.files('out', format='json'), uid='out')\n"
    )
    monkeypatch.chdir(home)
    flow_of("in", "out").run(store, spark=spark, available_now=True)
    command = ["check", str(tmp_path / "app.py"), "--store"]

    assert CliRunner().invoke(main, [*command, store]).exit_code == 0
    # A new store, whose output directory is that of another.
    found = CliRunner().invoke(main, [*command, str(tmp_path / "new")])
    assert found.exit_code == 1
    assert "give this sink another directory" in found.output
    monkeypatch.chdir(away)
    found = CliRunner().invoke(main, [*command, store])

    assert found.exit_code == 1
    assert f"start it in {home}" in found.output
    assert not (away / "out").exists()
