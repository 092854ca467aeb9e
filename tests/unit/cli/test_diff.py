from __future__ import annotations

from pathlib import Path
from typing import Any


def test_diff_in_numbers_and_in_full(cli: Any, shop: Path) -> None:
    short = cli("diff", f"{shop}@0", f"{shop}@1")
    full = cli("diff", f"{shop}@0", f"{shop}@1", "--full")
    found = cli("diff", f"{shop}@0", f"{shop}@1", "--full", "--json").json

    assert short.code == 0
    assert "keys added" in short.out
    assert "7.5" not in short.out
    assert "7.5" in full.out
    assert found["operators"]["velocity"]["spent"]["changed"] == 1
    (spent,) = [c for c in found["changes"] if c["variable"] == "spent"]
    assert (spent["key"], spent["before"], spent["after"]) == (
        {"user": "ann"},
        3.0,
        7.5,
    )


def test_diff_of_one_operator_is_cut_to_a_limit(cli: Any, shop: Path) -> None:
    done = cli(
        "diff", f"{shop}@0", f"{shop}", "--operator", "pairs", "--full", "--limit", 1
    )

    assert "velocity" not in done.out
    assert "more; --limit N" in done.out


def test_diff_of_an_operator_that_is_not_there(cli: Any, shop: Path) -> None:
    done = cli("diff", f"{shop}@0", f"{shop}", "--operator", "pears")

    assert done.code == 3
    assert "did you mean 'pairs'?" in done.err


def test_diff_without_a_difference(cli: Any, shop: Path) -> None:
    assert "no state differs" in cli("diff", f"{shop}@1", f"{shop}@1").out
    assert cli("diff", f"{shop}@1", f"{shop}@9").code == 3
