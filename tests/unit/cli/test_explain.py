from __future__ import annotations

from pathlib import Path
from typing import Any


def test_explain_an_epoch(cli: Any, shop: Path) -> None:
    cli("restore", f"{shop}@0", "--yes")

    shown = cli("explain", shop)
    found = cli("explain", f"{shop}@3", "--json").json

    assert "epoch 3: went back to epoch 0 (run 2)" in shown.out
    assert "epochs 1 to 2: undone" in shown.out
    assert found["parent"] == 0
    assert found["run"]["run"] == 2
    assert found["code"] == "c0de" * 6
    assert found["inputs"] == {"files-1": {"start": 3, "end": 3, "rows": 0}}


def test_explain_a_key(cli: Any, shop: Path) -> None:
    shown = cli("explain", shop, "--operator", "velocity", "--key", "ann")
    found = cli("explain", shop, "--operator", "pairs", "--key", '["x", 1]', "--json")

    assert "epoch 0" in shown.out
    assert "files-1 0 to 3, 3 records" in shown.out
    assert "epoch 2" not in shown.out
    assert [t["first"] for t in found.json] == [0, 1]
    gone = cli("explain", shop, "--operator", "velocity", "--key", "zoe")
    assert "no epoch" in gone.out


def test_explain_asks_for_the_operator_of_a_key(cli: Any, shop: Path) -> None:
    unclear = cli("explain", shop, "--key", "ann")

    assert unclear.code == 1
    assert "velocity" in unclear.err
    assert cli("explain", shop, "--operator", "velocity").code == 1
    assert cli("explain", f"{shop}@9").code == 3
