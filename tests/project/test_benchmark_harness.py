"""Contenders are told of as they are measured, and stopped when their time is over."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks import harness
from benchmarks.common import Epoch
from benchmarks.contest import contest
from benchmarks.harness import Contender, add_options, measure
from tests.chaos.processes import start_of

FAKE = """
import json, os, subprocess, sys, time
from pathlib import Path

what = sys.argv[1]
print("words that are not the result")
if what == "stuck":
    below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("hidden").write_text(str(below.pid))
    Path("hidden").rename("below")
    time.sleep(600)
if what == "broken":
    sys.exit(3)
print(json.dumps({"what": what, "number": len(list(Path().glob("ran-*")))}))
Path(f"ran-{what}-{os.getpid()}").touch()
"""
LONG = 60.0


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser, ("one", "two"))
    return parser.parse_args(words)


def named(result: dict[str, object]) -> str:
    return f"was {result['what']}"


OURS = Contender("ours", ("mine",), LONG)
ONE, TWO = (Contender(f"peer {n}", (n,), LONG, peer=n) for n in ("one", "two"))


def test_each_is_told_of_as_soon_as_it_is_measured(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def line(result: dict[str, object]) -> str:
        seen.append(len(list(place.glob("ran-*"))))
        return named(result)

    found = measure("fake", [OURS, ONE, TWO], line, options())

    assert seen == [1, 2, 3]
    assert {n: [r["what"] for r in each] for n, each in found.items()} == {
        "ours": ["mine"],
        "peer one": ["one"],
        "peer two": ["two"],
    }
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "fake: at most 3 minutes, runs: 3"
    assert [text.rpartition(" (")[0] for text in lines] == [
        "ours: was mine",
        "peer one: was one",
        "peer two: was two",
    ]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ["ours", "peer one", "peer two"]),
        (("--peers", "all"), ["ours", "peer one", "peer two"]),
        (("--peers", "none"), ["ours"]),
        (("--peers", "two"), ["ours", "peer two"]),
    ],
)
def test_peers_are_chosen_and_ours_always_runs(
    words: tuple[str, ...], names: list[str]
) -> None:
    found = measure("fake", [OURS, ONE, TWO], named, options(*words))

    assert list(found) == names


def test_an_unknown_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--peers", "three")

    assert "choose from" in capsys.readouterr().err


def test_contenders_take_turns_in_several_rounds() -> None:
    found = measure("fake", [OURS, ONE], named, options(), rounds=2)

    assert [r["number"] for r in found["ours"]] == [0, 2]
    assert [r["number"] for r in found["peer one"]] == [1, 3]


def test_who_takes_too_long_is_stopped_with_all_that_it_started(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    communicate = subprocess.Popen.communicate

    def until_it_is_stuck(process: Any, timeout: float) -> Any:
        if timeout != 1.0:
            return communicate(process, timeout=timeout)
        while not (place / "below").exists():
            time.sleep(0.01)
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", until_it_is_stuck)
    stuck = Contender("stuck", ("stuck",), 1.0)

    found = measure("fake", [stuck, ONE], named, options())

    assert list(found) == ["peer one"]
    assert "stuck: stopped, it took too long" in capsys.readouterr().out
    below = int((place / "below").read_text())
    # Signals take a moment; one that was missed would make this test hang.
    while start_of(below) is not None:
        time.sleep(0.01)


def test_time_is_shared_if_there_is_a_limit_for_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = []
    communicate = subprocess.Popen.communicate

    def noted(process: Any, timeout: float) -> Any:
        shares.append(timeout)
        return communicate(process, timeout=timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", noted)

    measure("fake", [OURS, ONE], named, options("--within", "110"))

    assert shares == [55.0, 55.0]
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == "fake: at most 110 seconds, runs: 2"


def test_who_fails_is_told_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = Contender("broken", ("broken",), LONG)

    found = measure("fake", [broken, OURS], named, options())

    assert list(found) == ["ours"]
    assert "broken: failed with 3" in capsys.readouterr().out


def nobody(chosen: argparse.Namespace, window: Any) -> list[Epoch]:
    raise AssertionError


def test_all_forms_of_ours_run_without_peers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []

    def told(
        module: str, runs: list[Contender], line: Any, chosen: Any, **_: Any
    ) -> Any:
        ran.extend(each.name for each in runs if harness.is_wanted(chosen, each.peer))
        return {}

    monkeypatch.setattr(harness, "measure", told)
    monkeypatch.setattr("benchmarks.common.RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["floor", "--peers", "none"])
    names = ("riverlock, over a backlog", "riverlock, live", "somebody else")

    contest("floor", "", dict.fromkeys(names, nobody), argparse.ArgumentParser())

    assert ran == ["riverlock, over a backlog", "riverlock, live"]


BENCHMARKS = [
    path
    for path in sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
    if "ArgumentParser(" in path.read_text() and path.stem != "short"
]


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: str(path.stem))
def test_every_benchmark_is_run_by_the_harness(path: Path) -> None:
    """So it takes ``--peers``, says how long it takes, and tells of each at once."""
    text = path.read_text()

    assert "harness.measure(" in text or "contest(" in text


def test_the_short_run_takes_peers_and_starts_nothing_when_asked_for_help() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks.short", "--help"]

    told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)

    assert "--peers {all,none}" in told.stdout
    assert "benchmarks.keyed_state" not in told.stdout
