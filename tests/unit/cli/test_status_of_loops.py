"""What ``riverlock status`` and ``check`` say of flows with loops."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from tests.unit.driver.test_loop_runs import retrying, run

import riverlock as rl
from riverlock.cli import main


def test_status_shows_rows_in_a_loop(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(retrying([("a", 9), ("b", 9)], rl.sinks.memory()), store, max_epochs=2)
    told = CliRunner().invoke(main, ["status", store])
    assert told.exit_code == 0, told.output
    assert "in loop again" in told.output
    assert "2 rows" in told.output
    found = json.loads(CliRunner().invoke(main, ["status", store, "--json"]).output)
    assert found["loops"] == {"again": 2}


def test_status_shows_a_flow_whose_loop_passes_two_regions(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(retrying([("a", 2)], rl.sinks.memory(), behind="behind"), store)
    told = CliRunner().invoke(main, ["status", store])
    assert told.exit_code == 0, told.output
    assert "in loop again" in told.output
    assert "0 rows" in told.output
