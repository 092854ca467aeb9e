from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.stores import beat, claim

from riverlock.driver import ownership
from riverlock.driver.ownership import Heartbeat
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.requests import requests_after
from riverlock.storage.local import LocalStorage


def test_a_savepoint_is_made_and_dropped(cli: Any, shop: Path) -> None:
    cli("snapshot", shop, "v1", "--at", 1)

    assert cli("snapshot", shop, "v1").code == 1  # the name is taken
    assert "epoch 1" in cli("snapshot", shop, "v1", "--drop").out
    assert cli("snapshot", shop, "v1", "--drop").code == 3
    assert cli("snapshot", shop, "v1", "--json").json["epoch"] == 2
    assert cli("snapshot", shop, "v1", "--drop", "--json").json == {
        "name": "v1",
        "epoch": 2,
        "regions": {"main": 2},
    }


@pytest.mark.parametrize(
    "more", [("@1", ()), ("", ("--at", "1")), ("", ("--note", "x"))]
)
def test_drop_takes_a_store_and_a_name_alone(
    cli: Any, shop: Path, more: tuple[str, tuple[str, ...]]
) -> None:
    at, options = more
    cli("snapshot", shop, "v1", "--at", 1)

    done = cli("snapshot", f"{shop}{at}", "v1", "--drop", *options)

    assert done.code == 1
    assert "STORE and NAME alone" in done.err
    assert "epoch 1" in cli("snapshot", shop, "v1", "--drop").out


def test_expire_shows_its_plan_and_acts_only_when_told(cli: Any, shop: Path) -> None:
    cli("snapshot", shop, "v1", "--at", 0)
    words = ("expire", shop, "--keep-epochs", 1, "--grace", "0s")

    dry, unasked = cli(*words, "--dry-run", "--json"), cli(*words)

    assert dry.json["done"] is False
    assert dry.json["plan"]["epochs"] == [1]
    assert dry.json["plan"]["spared"] == {"0": ["name 'v1'"]}
    assert "nothing was changed" in unasked.out
    assert len(cli("snapshots", shop, "--json").json) == 3
    done = cli(*words, "--yes", "--json").json
    assert done["done"] is True
    epochs = cli("snapshots", shop, "--json").json
    assert [e["epoch"] for e in epochs] == [0, 2]
    assert epochs[0]["inputs"] == {"files-1": {"start": 0, "end": 3, "rows": 3}}
    assert cli("verify", shop).code == 0


@pytest.mark.parametrize("words", [("--max-bytes", "many"), ()])
def test_expire_refuses_what_it_does_not_understand(
    cli: Any, shop: Path, words: tuple[str, ...]
) -> None:
    done = cli("expire", shop, *words)

    assert done.code in (1, 2)
    assert words or "riverlock expire STORE --keep-epochs 5 --dry-run" in done.err
    assert len(cli("snapshots", shop, "--json").json) == 3


def test_stop_of_a_flow_that_does_not_run(cli: Any, shop: Path) -> None:
    done = cli("stop", shop, "--savepoint", "v1")

    assert done.code == 1
    assert "no run that is alive" in done.err


def test_stop_asks_the_run_and_waits_for_its_end(
    cli: Any, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "_BEAT_SECONDS", 0.01)
    catalog = Catalog(LocalStorage(shop))
    claim(catalog, os.getpid())
    run = catalog.newest_run()
    assert run is not None
    asked = threading.Event()

    def end(request: Any) -> None:
        if not asked.is_set():
            catalog.pin(request.what.savepoint, epoch=2, now_us=0)
        asked.set()

    heart = Heartbeat(catalog, run, lambda: None)
    heart.listen(end, after=0)
    heart.start()

    def stop_when_asked() -> None:
        assert asked.wait(200)
        heart.stop()

    loop = threading.Thread(target=stop_when_asked)
    loop.start()

    done = cli("stop", shop, "--savepoint", "v1", "--timeout", "200s", "--json")

    loop.join()
    assert done.json == {"run": 2, "ended": True, "savepoint": "v1", "epoch": 2}


def test_stop_refuses_a_name_that_is_taken(cli: Any, shop: Path) -> None:
    catalog = Catalog(LocalStorage(shop))
    claim(catalog, os.getpid())
    beat(catalog)
    cli("snapshot", shop, "v1")

    done = cli("stop", shop, "--savepoint", "v1")

    assert done.code == 1
    assert list(requests_after(catalog, 0)) == []
