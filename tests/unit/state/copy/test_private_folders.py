"""The folder of working copies is our own, or it is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.snapshot.small_flow import SmallFlow

from riverlock.core.errors import InvalidConfigError
from riverlock.state.copy.private_folders import make_private


def mode_of(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


def test_a_folder_is_made_for_us_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b")
    make_private(tmp_path / "a" / "b")

    assert mode_of(tmp_path / "a" / "b") == 0o700


def test_a_folder_of_ours_that_others_could_use_is_closed(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b").chmod(0o777)

    make_private(tmp_path / "b")

    assert mode_of(tmp_path / "b") == 0o700


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b").mkdir(mode=0o777)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(InvalidConfigError, match=f"got one of user {owner}"):
        make_private(tmp_path / "b")


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    flow = SmallFlow(tmp_path / "store", [("k", 1)], tmp_path / "out")
    record = flow.catalog.open_flow("small", key_groups=16, now_us=1)
    (flow.store / ".working").mkdir()
    (flow.store / ".working" / record.id).symlink_to(elsewhere)

    with pytest.raises(InvalidConfigError, match="got a link"):
        flow.run()

    assert not list(elsewhere.iterdir())
    assert flow.catalog.epochs() == []
