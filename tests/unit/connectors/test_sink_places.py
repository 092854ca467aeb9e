"""Paths of sinks and sources that mean another place in another directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.change.test_renumbering import manifest_of

import riverlock as rl
from riverlock.core.errors import InvalidConfigError
from riverlock.driver.starting.continuing import check_here
from riverlock.flow.inside import program_of

NAMES = ["files", "delta", "sqlite", "source"]


def flow_of(name: str, path: str) -> rl.Flow:
    flow = rl.Flow("shop")
    url = f"sqlite:///{path}"
    if name == "source":
        rows = rl.sources.sql(url, table="t", column="k", schema="k long")
        flow.read(rows, uid="rows").write(rl.sinks.memory())
        return flow
    sinks: dict[str, Any] = {
        "files": lambda: rl.sinks.files(path, format="json"),
        "delta": lambda: rl.sinks.delta(path),
        "sqlite": lambda: rl.sinks.sql(url, table="t", create=True),
    }
    numbers = rl.sources.generator({"k": "id"}, rows=1)
    flow.read(numbers, uid="numbers").write(sinks[name](), uid="out")
    return flow


def write(name: str, path: Path) -> None:
    """Make what a sink or source of that kind has left."""
    if name == "files":
        (path / "_riverlock").mkdir(parents=True)
        (path / "_riverlock/owner.json").write_text('{"flow": "f", "sink": "out"}')
    elif name == "delta":
        (path / "_delta_log").mkdir(parents=True)
    else:
        path.touch()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "away"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", ["data/out", "./out", "../home/out"])
def test_another_directory_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: str
) -> None:
    newest = manifest_of(flow_of(name, given))
    monkeypatch.chdir(home.with_name("away"))

    with pytest.raises(InvalidConfigError, match="nothing was changed") as caught:
        check_here(program_of(flow_of(name, given)), newest, {})

    assert f"start it in {home}, or write the whole path" in caught.value.hint
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_told_also_where_there_is_something_of_that_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    newest = manifest_of(flow_of(name, "out"))
    (home / "out").touch()
    monkeypatch.chdir(home.with_name("away"))
    Path("out").touch()

    with pytest.raises(InvalidConfigError, match="as when the flow"):
        check_here(program_of(flow_of(name, "out")), newest, {})


@pytest.mark.parametrize("name", NAMES)
def test_what_moved_with_its_directory_is_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    newest = manifest_of(flow_of(name, "out"))
    monkeypatch.chdir(home.with_name("away"))
    write(name, Path("out"))

    check_here(program_of(flow_of(name, "out")), newest, {})


def test_an_empty_directory_is_not_what_was_moved(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = {n: manifest_of(flow_of(n, "out")) for n in ("files", "delta")}
    monkeypatch.chdir(home.with_name("away"))
    Path("out").mkdir()

    for name, manifest in newest.items():
        with pytest.raises(InvalidConfigError, match="as when the flow"):
            check_here(program_of(flow_of(name, "out")), manifest, {})


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_path_means_the_same_everywhere(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    newest = manifest_of(flow_of(name, "out"))
    monkeypatch.chdir(home.with_name("away"))

    check_here(program_of(flow_of(name, str(home / "out"))), newest, {})
