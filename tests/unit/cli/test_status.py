from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cli.stores import beat, claim, say

from riverlock.cli.status import lag
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Watermark
from riverlock.storage.local import LocalStorage


@pytest.fixture
def catalog(shop: Path) -> Catalog:
    return Catalog(LocalStorage(shop))


@pytest.fixture
def dead_pid() -> int:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return gone.pid


def test_status_of_stopped_flow(cli: Any, shop: Path) -> None:
    found = cli("status", shop, "--json").json

    assert found["state"] == "stopped"
    assert (found["flow"], found["epoch"], found["run"]) == ("shop", 2, 1)
    assert found["rows_per_second"] == 3.0
    assert found["lag_rows"] == {"files-1": 7}
    assert {o["uid"] for o in found["operators"]} == {"velocity", "pairs"}
    assert found["sinks"] == [{"uid": "files-2", "kind": "files", "rows": 2}]


def test_status_is_one_screen(cli: Any, shop: Path) -> None:
    out = cli("status", shop).out

    assert out.startswith("shop: stopped (run 1, process ")
    for words in ("3 records/s", "7 records", "2023-11-14T22:13:20Z", "velocity"):
        assert words in out


def test_status_running_while_the_heart_beats(
    cli: Any, shop: Path, catalog: Catalog
) -> None:
    claim(catalog, os.getpid())
    say(catalog, state="running")
    beat(catalog)

    assert cli("status", shop, "--json").json["state"] == "running"


def test_status_waiting_when_all_is_read(
    cli: Any, shop: Path, catalog: Catalog
) -> None:
    claim(catalog, os.getpid())
    say(catalog, state="running")
    status = msgspec.json.decode(catalog.storage.get(catalog.paths.status))
    status["lag_rows"] = {"files-1": 0}
    catalog.storage.put(catalog.paths.status, msgspec.json.encode(status))
    beat(catalog)

    assert cli("status", shop, "--json").json["state"] == "waiting"


def test_status_starting_before_the_first_beat(
    cli: Any, shop: Path, catalog: Catalog
) -> None:
    claim(catalog, os.getpid())

    assert cli("status", shop, "--json").json["state"] == "starting"


def test_status_stalled_when_the_heart_stands_still(
    cli: Any, shop: Path, catalog: Catalog
) -> None:
    claim(catalog, os.getpid())
    say(catalog, state="running")
    beat(catalog)
    owner = shop / catalog.paths.owner
    os.utime(owner, (owner.stat().st_atime, owner.stat().st_mtime - 60))

    assert cli("status", shop, "--json").json["state"] == "stalled"


def test_status_crashed_from_manifests_alone(
    cli: Any, shop: Path, catalog: Catalog, dead_pid: int
) -> None:
    claim(catalog, dead_pid)
    beat(catalog)
    catalog.storage.delete(catalog.paths.status)

    done = cli("status", shop)

    assert done.out.startswith("shop: crashed (run 2")
    assert "lag          unknown" in done.out
    assert "it continues where it was" in done.out


def test_status_failed_shows_the_error(cli: Any, shop: Path, catalog: Catalog) -> None:
    claim(catalog, os.getpid())
    say(catalog, state="failed", error="user code raised ValueError")
    beat(catalog, has_ended=True)

    out = cli("status", shop).out

    assert out.startswith("shop: failed")
    assert "last error: user code raised ValueError" in out


def test_status_of_an_earlier_run_is_not_believed(
    cli: Any, shop: Path, catalog: Catalog, dead_pid: int
) -> None:
    say(catalog, state="failed", error="long ago")
    claim(catalog, dead_pid)

    found = cli("status", shop, "--json").json

    assert (found["state"], found["error"]) == ("crashed", None)


def test_status_of_a_store_without_run(cli: Any, tmp_path: Path) -> None:
    Catalog(LocalStorage(tmp_path)).open_flow("fresh", key_groups=8, now_us=0)

    done = cli("status", tmp_path)

    assert done.code == 0
    assert done.out == "fresh: new\nno epoch yet\n"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({}, "unknown"),
        ({"a": None, "b": 1}, "unknown"),
        ({"a": 0}, "none"),
        ({"a": 1200, "b": 34}, "1,234 records"),
    ],
)
def test_lag_adds_up_what_is_known(rows: Any, expected: str) -> None:
    assert lag(rows) == expected


def test_status_says_which_input_is_idle_and_which_holds_time_back(
    cli: Any, shop: Path, catalog: Catalog
) -> None:
    newest = catalog.newest()
    assert newest is not None
    marks = {
        "orders": Watermark(
            watermark_us=50, active_us=newest.now_us, delay_us=90_000_000
        ),
        "rates": Watermark(watermark_us=70, active_us=newest.now_us),
        "rare": Watermark(active_us=newest.decided_us, idle_after_us=1_000),
    }
    following = msgspec.structs.replace(
        newest, epoch=newest.epoch + 1, parent=newest.epoch, watermarks=marks
    )
    assert catalog.decide(following)
    stopped = {i["uid"]: i for i in cli("status", shop, "--json").json["inputs"]}
    claim(catalog, os.getpid())
    beat(catalog)

    found = {i["uid"]: i for i in cli("status", shop, "--json").json["inputs"]}
    out = cli("status", shop).out

    assert [u for u, i in found.items() if i["holds_back"]] == ["orders"]
    assert found["rare"]["idle_since_us"] == newest.decided_us
    said = "1 min 30 s behind its newest record; waited for, however long it is silent"
    assert found["orders"]["policy"] == said
    assert said in out
    assert found["rare"]["standing"].startswith("idle for")
    assert "holds time back" in out
    assert "idle for" in out
    # Nobody reads the inputs of a flow that does not run.
    assert stopped["rare"]["idle_since_us"] is None
