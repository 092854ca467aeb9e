from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.unit.cli.stores import beat, claim

from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage


def test_restore_shows_its_plan_and_acts_only_when_told(cli: Any, shop: Path) -> None:
    cli("snapshot", shop, "v1", "--at", 0)

    shown, planned = cli("restore", f"{shop}@v1"), cli("restore", f"{shop}@0", "--json")

    assert "goes back to" in shown.out
    assert "epochs 1 to 2" in shown.out
    assert "sink files-2 (files)  4 rows are withdrawn" in shown.out
    assert "input files-1" in shown.out
    assert "nothing was changed; use --yes to do it" in shown.out
    assert planned.json["done"] is False
    assert planned.json["plan"]["inputs"] == {"files-1": {"to": 3, "from": 9}}
    assert len(cli("snapshots", shop, "--json").json) == 3
    assert cli("restore", f"{shop}@v1", "--yes").code == 0
    rows = cli("state", shop, "velocity", "spent", "--json").json
    assert rows["epoch"] == 3
    assert (
        rows["rows"]
        == cli("state", shop, "velocity", "spent", "--at", "v1", "--json").json["rows"]
    )
    assert cli("status", shop, "--json").json["state"] == "stopped"
    assert cli("verify", shop).code == 0


def test_restore_keeps_output_if_told(cli: Any, shop: Path) -> None:
    done = cli("restore", f"{shop}@0", "--keep-output", "--yes", "--json").json

    assert done["epoch"] == 3
    assert done["plan"]["sinks"]["files-2"]["withdrawn"] is False


def test_restore_of_what_is_not_there(cli: Any, shop: Path) -> None:
    assert cli("restore", f"{shop}@v9", "--yes").code == 3
    assert cli("restore", f"{shop}@7", "--yes").code == 3


def test_restore_of_a_flow_that_runs_says_what_to_do(cli: Any, shop: Path) -> None:
    catalog = Catalog(LocalStorage(shop))
    claim(catalog, os.getpid())
    catalog.storage.delete(catalog.paths.owner)  # it starts, and has not beaten yet

    done = cli("restore", f"{shop}@0", "--yes")

    assert done.code == 4
    assert "riverlock stop" in done.err
    assert done.out == ""  # no plan that could not be carried out
    assert "goes back to" in cli("restore", f"{shop}@0", "--dry-run").out
    beat(catalog, has_ended=True)
    assert cli("restore", f"{shop}@0", "--yes").code == 0
