from __future__ import annotations

from pathlib import Path

import pytest

import riverlock as rl


def test_relative_folder_means_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    sink = rl.sinks.files("out", format="json")

    assert sink.path == str(tmp_path / "out")


def test_home_is_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    sink = rl.sinks.files("~/out", format="json")

    assert sink.path == str(tmp_path / "out")
