from __future__ import annotations

import contextlib
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from riverlock.cli import doctor
from riverlock.storage.base import Entry
from riverlock.storage.local import LocalStorage


def test_new_project_passes_its_own_test(cli: Any, tmp_path: Path) -> None:
    done = cli("new", tmp_path / "shop")

    assert done.code == 0
    assert 'rl.Flow("shop")' in (tmp_path / "shop/app.py").read_text()
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "shop",
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout


def test_new_takes_an_empty_folder(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()

    found = cli("new", tmp_path / "shop", "--json").json

    assert "app.py" in found["files"]


def test_new_refuses_a_folder_with_content(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    done = cli("new", tmp_path)

    assert done.code == 1
    assert "files in it" in done.err
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["two words", "-x", "ä"])
def test_new_refuses_a_name_that_no_flow_may_have(
    cli: Any, tmp_path: Path, name: str
) -> None:
    assert cli("new", tmp_path / name).code == 1
    assert not (tmp_path / name).exists()


def test_doctor_finds_all_well_and_leaves_no_trace(cli: Any, tmp_path: Path) -> None:
    done = cli("doctor", "--store", tmp_path / "a/b", "--json")

    names = {f["name"]: f for f in done.json["findings"]}
    assert done.code == 0, done.out
    assert {"Java", "Python", "pyspark", "lmdb", "store: create if absent"} <= set(
        names
    )
    assert list(tmp_path.iterdir()) == []


def test_doctor_leaves_a_store_as_it_was(cli: Any, shop: Path) -> None:
    before = sorted(shop.rglob("*"))

    assert cli("doctor", "--store", shop).code == 0

    assert [p for p in sorted(shop.rglob("*")) if ".tmp" not in p.parts] == [
        p for p in before if ".tmp" not in p.parts
    ]


def test_doctor_says_what_to_mend(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everybody_wins(self: LocalStorage, path: str, data: bytes) -> bool:
        self.put(path, data)
        return True

    monkeypatch.setattr(LocalStorage, "put_if_absent", everybody_wins)
    monkeypatch.setattr("riverlock.spark.java.find_java", lambda: None)

    done = cli("doctor", "--store", tmp_path)

    assert done.code == 1
    assert "8 of 8 writers were told that they were first" in done.out
    assert "pip install 'riverlock[java]'" in done.out
    assert done.out.endswith("something is missing\n")


@pytest.mark.parametrize(("second", "is_right"), [(4, True), (-3, False), (13, False)])
def test_doctor_does_not_take_a_slow_store_for_a_wrong_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: int, is_right: bool
) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    times = iter((begin, begin + timedelta(seconds=10)))
    entry = Entry(path="x", size=1, mtime=begin + timedelta(seconds=second))
    monkeypatch.setattr(doctor, "datetime", SimpleNamespace(now=lambda _: next(times)))
    monkeypatch.setattr(LocalStorage, "head", lambda *_: entry)

    told = contextlib.nullcontext() if is_right else pytest.raises(doctor._WrongError)
    with told:
        doctor._clock(LocalStorage(tmp_path), "x")


def test_doctor_of_an_unknown_kind_of_store(cli: Any) -> None:
    done = cli("doctor", "--store", "ftp://host/x")

    assert done.code == 1
    assert "ftp" in done.out
