from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def test_fork_shows_its_plan_and_acts_only_when_told(
    cli: Any, shop: Path, tmp_path: Path
) -> None:
    new = tmp_path / "trial"

    shown = cli("fork", f"{shop}@1", new)

    assert "they stay where they are" in shown.out
    assert "nothing was changed" in shown.out
    assert not new.exists()
    assert cli("fork", f"{shop}@1", new, "--yes", "--json").json["plan"]["epoch"] == 1
    ours = cli("state", new, "velocity", "spent", "--json").json
    theirs = cli("state", shop, "velocity", "spent", "--at", 1, "--json").json
    assert ours == theirs
    assert cli("verify", new).code == 0
    assert cli("fork", f"{shop}@1", new, "--yes").code == 1
    (fork,) = cli("forks", shop, "--json").json
    assert fork["epoch"] == 1
    kept = cli("expire", shop, "--keep-epochs", 1, "--grace", "0s", "--dry-run").out
    assert "1: fork" in kept


def test_a_deleted_fork_is_forgotten(cli: Any, shop: Path, tmp_path: Path) -> None:
    cli("fork", f"{shop}@1", tmp_path / "trial", "--yes")
    (fork,) = cli("forks", shop, "--json").json
    shutil.rmtree(tmp_path / "trial")

    assert fork["flow"] in cli("forks", shop).out
    assert "no fork" in cli("forks", shop, "--forget", fork["flow"]).out
    assert cli("forks", shop, "--forget", fork["flow"]).code == 3


def test_a_fork_without_its_parent_says_where_the_files_should_be(
    cli: Any, shop: Path, tmp_path: Path
) -> None:
    cli("fork", f"{shop}@1", tmp_path / "trial", "--yes")
    shutil.rmtree(shop)

    done = cli("verify", tmp_path / "trial")

    assert done.code == 3
    assert f"no such file in {shop.as_uri()}" in done.err
