from __future__ import annotations

from pathlib import Path
from typing import Any


def test_repair_shows_its_plan_and_acts_only_when_told(cli: Any, shop: Path) -> None:
    (damaged,) = (shop / "regions/main/state/velocity").glob(f"{2:012d}-*")
    damaged.write_bytes(b"damaged")
    (shop / "notes.txt").write_text("mine")

    seen, shown = cli("verify", shop), cli("repair", shop)

    assert seen.code == 3
    assert "affects operator velocity, key groups 0 to 127, in epoch 2" in seen.err
    assert "newest whole epoch is 1" in seen.err
    assert "foreign: notes.txt" in seen.err
    assert "riverlock repair" in seen.err
    assert "goes back to" in shown.out
    assert damaged.name in shown.out
    assert cli("repair", shop, "--yes", "--dry-run").code == 0
    assert damaged.exists()
    done = cli("repair", shop, "--yes", "--json").json
    assert done["plan"]["lost"] == [2]
    assert cli("verify", shop, "--json").json["whole"] is True
    assert (shop / done["quarantine"] / "notes.txt").exists()
    assert "nothing to repair" in cli("repair", shop).out
