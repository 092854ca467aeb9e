"""A region that fails begins again alone, and its error is told at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.driver.ledger_flow import transfers
from tests.unit.driver.test_bounded_regions import added, pair, total
from tests.unit.driver.test_regions_apart import begin, eventually

import riverlock as rl
from riverlock.cli import main
from riverlock.coordinator.restart import FixedDelay
from riverlock.core.errors import CommitRejectedError, EpochAbortedError
from riverlock.driver.region_place import RegionPlace
from riverlock.driver.steps.failures import may_pass
from riverlock.engines.local.deployment import LocalDeployment
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

ONCE = FixedDelay(delay_us=1_000, attempts=1)
Fail = Callable[[str, int], None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Let the next stages of a region fail as if the network had."""
    left: dict[str, int] = {}
    run_stage = LocalDeployment.run_stage

    def failing(self: LocalDeployment, order: Any, *args: Any) -> Any:
        if left.get(order.region, 0):
            left[order.region] -= 1
            message = "no route to host"
            raise OSError(message)
        return run_stage(self, order, *args)

    monkeypatch.setattr(LocalDeployment, "run_stage", failing)
    return left.__setitem__


def runs(store: str, region: str) -> int:
    run = Catalog(open_storage(store), region).newest_run()
    assert run is not None
    return run.run


def status(store: str) -> Any:
    return json.loads(CliRunner().invoke(main, ["status", store, "--json"]).output)


def test_a_region_begins_again_alone(tmp_path: Path, fail: Fail) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    # Twice in its first run, which ends it, and once in its second.
    fail("behind", 3)
    handle = begin(pair(given, None), store, restart=ONCE, max_rows_per_epoch=10)
    for operator in ("credit", "free"):
        eventually(lambda: added(store, operator) == total(given), operator)  # noqa: B023
    assert (runs(store, "behind"), runs(store, "free"), runs(store, "main")) == (
        2,
        1,
        1,
    )
    # An epoch was decided: it may fail as often again.
    given += transfers(60)[40:]
    eventually(lambda: added(store, "credit") == total(given), "the others")
    fail("behind", 3)
    given += transfers(90)[60:]
    eventually(lambda: added(store, "credit") == total(given), "all")
    assert runs(store, "behind") == 3
    handle.stop()


def test_a_region_that_fails_for_good_is_told_at_once(
    tmp_path: Path, fail: Fail
) -> None:
    store, given = str(tmp_path / "s"), transfers(40)
    fail("behind", 1000)
    handle = begin(pair(given, None), store, restart=ONCE, max_rows_per_epoch=10)
    eventually(lambda: handle.status("behind").state == "failed", "that it failed")
    eventually(lambda: added(store, "free") == total(given), "the others' rows")
    told = status(store)["regions"]
    assert told["behind"]["state"] == "failed"
    assert "no route to host" in told["behind"]["error"]
    assert told["main"]["state"] in ("running", "waiting")
    assert runs(store, "behind") == 2
    (channel,) = [c for c in status(store)["channels"] if c["channel"] == "x"]
    assert (channel["rows"], channel["read"]) == (40, None)
    with pytest.raises(EpochAbortedError, match="no route to host"):
        handle.stop()
    fail("behind", 0)
    handle = begin(pair(given, None), store)
    eventually(lambda: added(store, "credit") == total(given), "what the channel kept")
    handle.stop()


def test_a_region_can_be_stopped_while_it_waits_to_begin_again(
    tmp_path: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, given = str(tmp_path / "s"), transfers(10)
    fail("behind", 1000)
    monkeypatch.setattr(RegionPlace, "_delay_us", lambda *_: 3_600_000_000)
    handle = begin(pair(given, None), store, restart=ONCE)
    eventually(
        lambda: "begins again in" in str(handle.status("behind").error), "that it waits"
    )
    told = status(store)["regions"]["behind"]
    assert told["state"] == "starting"
    assert "no route to host" in told["waiting"]
    # An hour is not over: it ends at once, and its error is told.
    with pytest.raises(EpochAbortedError, match="no route to host"):
        handle.stop()


def test_errors_that_would_recur_end_a_region() -> None:
    aborted = EpochAbortedError(epoch=1, reason="stage", cause="lost")
    assert may_pass(aborted)
    assert not may_pass(CommitRejectedError("out", epoch=1, what="no such table"))
    assert not may_pass(rl.errors.InvalidConfigError("x", expected="y", found="z"))


def test_one_region_is_stopped_by_command(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), transfers(20)
    handle = begin(pair(given, None), store)
    try:
        eventually(lambda: added(store, "credit") == total(given), "all rows")
        wrong = command("stop", store, "--region", "behnid")
        assert wrong.exit_code != 0
        assert "did you mean 'behind'?" in wrong.output
        done = command("stop", store, "--region", "behind")
        assert "region behind: run 1 has ended" in done.output
        assert handle.is_active
        given += transfers(30)[20:]
        eventually(lambda: added(store, "free") == total(given), "rows of the others")
        assert added(store, "credit") < total(given)
        told = status(store)
        assert told["regions"]["behind"]["state"] == "stopped"
        assert {c["channel"]: c["rows"] for c in told["channels"]} == {"x": 10, "y": 0}
        assert "10 records" in command("status", store).output.partition("written")[2]
        asked = command("rescale", store, "2", "--region", "free", "--wait", "0")
        assert "run 1 was asked for 2 tasks" in asked.output
        done = command("stop", store, "--json")
        ended = json.loads(done.output)["regions"]
        assert {r: f["ended"] for r, f in ended.items()} == {"free": True, "main": True}
        assert handle.wait(60)
    finally:
        handle.stop()


def command(*words: str) -> Any:
    return CliRunner().invoke(main, words)
