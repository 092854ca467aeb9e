"""What ``check`` and ``status`` say of regions that are not exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.chaos.guarantee_flow import flow_of
from tests.unit.driver.test_regions_run import run

import riverlock as rl
from riverlock.cli.check import _print, _told
from riverlock.driver.run_options import RunOptions
from riverlock.engines.running import opened
from riverlock.flow.inside import program_of

ALONG = {
    "out-loose": "at least once (region loose), from main (exactly once)",
    "files-loose": "at least once (region loose), from main (exactly once)",
    "table-loose": "at least once (region loose), from main (exactly once)",
    "out-strict": "exactly once (region strict), from main (exactly once)",
}


def told(flow: rl.Flow) -> dict[str, Any]:
    """Return what ``check --json`` prints."""
    with opened(RunOptions(execution="local")) as engine:
        return _told(program_of(flow), engine, None)


def test_check_says_what_each_sink_is_promised_along_its_way(tmp_path: Path) -> None:
    sinks = {s["uid"]: s for s in told(flow_of(1, tmp_path, "at least once"))["sinks"]}
    assert {u: s["along"] for u, s in sinks.items() if s["along"]} == ALONG
    assert sinks["to-loose"]["along"] is None
    assert sinks["out-loose"]["guarantee"].startswith("at least once: rows leave with")
    assert sinks["out-strict"]["guarantee"].startswith("exactly once: each epoch")


def test_check_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _print(told(flow_of(1, tmp_path, "at least once")))
    out = capsys.readouterr().out
    for uid, words in ALONG.items():
        assert f"{uid}  " in out
        assert words in out
    plain = rl.Flow("plain")
    plain.read(rl.testing.rows("n long", []), uid="in").write(rl.sinks.memory())
    _print(told(plain))
    assert "along the whole path" not in capsys.readouterr().out


def test_check_says_so_of_at_most_once(tmp_path: Path) -> None:
    flow = rl.Flow("one", guarantee="at most once")
    read = flow.read(rl.testing.rows("n long", []), uid="in")
    read.write(rl.sinks.files(str(tmp_path), format="json"), uid="out")
    (sink,) = told(flow)["sinks"]
    assert sink["along"] == "at most once (region main)"
    assert sink["guarantee"].startswith("at most once: rows are handed over once")


def test_a_sink_that_takes_no_rows_from_tasks_keeps_its_own_words(
    tmp_path: Path,
) -> None:
    flow = rl.Flow("one", guarantee="at least once")
    read = flow.read(rl.testing.rows("n long", []), uid="in")
    read.write(rl.sinks.files(str(tmp_path), format="json"), uid="files")
    slow = rl.sinks.http("http://127.0.0.1:9/", rate=5)
    read.write(slow, uid="slow")
    read.write(rl.sinks.http("http://127.0.0.1:9/"), uid="fast")
    found = {s["uid"]: s["guarantee"] for s in told(flow)["sinks"]}
    assert found["files"].startswith("exactly once: each epoch")
    assert "with an id per row" in found["slow"]
    assert found["fast"].startswith("at least once: rows leave with")


def test_status_says_it_by_region(cli: Any, tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(flow_of(20, tmp_path, "at least once"), store)
    found = cli("status", store, "--json").json["regions"]
    assert found["loose"]["along"] == ALONG["out-loose"]
    assert found["loose"]["guarantee"] == "at least once"
    assert found["loose"]["skipped_rows"] == 0
    assert found["strict"]["along"] == ALONG["out-strict"]
    out = cli("status", store).out
    assert ALONG["out-loose"] in out
