from __future__ import annotations

import pytest

import riverlock as rl
from riverlock.cli.regions import print_regions, regions_in
from riverlock.flow.inside import program_of
from riverlock.testing import rows


def test_check_lists_regions_and_channels(capsys: pytest.CaptureFixture[str]) -> None:
    flow = rl.Flow("cut")
    read = flow.read(rows("k string", []), uid="in")
    read.region("slow", uid="x", bound=rl.Bound(rows=9), parallelism=3)
    read.region("free", uid="y")
    found = regions_in(program_of(flow), ("main", "slow", "free"))
    assert found["paces"] == {"main": {}, "slow": {"parallelism": 3}, "free": {}}
    assert [(c["channel"], c["writer"], c["reader"]) for c in found["channels"]] == [
        ("x", "main", "slow"),
        ("y", "main", "free"),
    ]
    print_regions(found)
    shown = capsys.readouterr().out
    assert "9 rows" in shown
    assert "no bound" in shown
    assert "as the run" in shown
