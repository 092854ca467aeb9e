"""Exports: nothing is overwritten, and what is missing is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import pytest
from tests.unit.cli.conftest import cli as cli
from tests.unit.cli.stores import make_store

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, SnapshotCorruptedError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_store(tmp_path / "store").pin("v1", epoch=1, now_us=7)
    return tmp_path / "store"


def test_command_writes_tables(cli: Any, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    done = cli("export", root, out, "--json")

    assert done.json["epoch"] == 2
    assert {t["name"]: t["rows"] for t in done.json["tables"]} == {
        "pairs": 3,
        "pairs.timers": 0,
        "velocity": 4,
        "velocity.timers": 4,
    }
    assert sorted(pd.read_parquet(out / "velocity")["spent"]) == [1.0, 2.0, 5.0, 7.5]
    # Also a table without rows has its columns.
    assert list(pd.read_parquet(out / "pairs.timers").columns) == [
        "a",
        "b",
        "kind",
        "at",
    ]


def test_command_writes_delta_tables_of_an_earlier_epoch(
    cli: Any, root: Path, tmp_path: Path
) -> None:
    done = cli("export", f"{root}@v1", tmp_path / "out", "--format", "delta")

    assert done.code == 0
    table = deltalake.DeltaTable(str(tmp_path / "out" / "velocity"))
    assert table.metadata().description == "state at epoch 1"
    assert sorted(table.to_pandas()["user"]) == ["ann", "ben"]


def test_nothing_is_overwritten(cli: Any, root: Path, tmp_path: Path) -> None:
    taken = tmp_path / "out" / "velocity"
    taken.mkdir(parents=True)

    done = cli("export", root, tmp_path / "out")

    assert done.code == 1
    assert "nothing is overwritten" in done.err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["velocity"]
    assert list(taken.iterdir()) == []


def test_damage_leaves_no_file_that_looks_whole(root: Path, tmp_path: Path) -> None:
    for file in root.glob("regions/main/state/pairs/*.parquet"):
        file.write_bytes(b"?")

    with pytest.raises(SnapshotCorruptedError):
        rl.open(root).export(tmp_path / "out")

    assert list(tmp_path.glob("out/pairs/part-*")) == []


def test_without_deltalake_the_extra_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)

    with pytest.raises(InvalidConfigError) as caught:
        rl.open(root).export(tmp_path / "out", kind="delta")

    assert "riverlock[delta]" in caught.value.hint
    assert not (tmp_path / "out").exists()
