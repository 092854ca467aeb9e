"""Which files of a path are read."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from riverlock.connectors.files.reading.input_listing import Listing
from riverlock.core.errors import SourceUnavailableError


def listed(path: Path | str) -> tuple[set[str], set[str]]:
    """Return the names that are read, and those that are set aside."""
    listing = Listing(str(path), "in", encoding=lambda: "utf-8", waits=False)
    read = {Path(entry[0]).name for entry in listing.files()}
    return read, {Path(name).name for name in listing.set_aside}


def put(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        ("in", {"a", "b"}),
        ("in/*", {"a", "b"}),
        ("i*", {"a", "b"}),
        ("in/*/*", {"b"}),
        ("in/_temporary", {"c"}),
        ("in/_t*", {"c"}),
        ("in/_temporary/*", {"c"}),
        (".h*/in", {"d"}),
        ("*/in", set()),
    ],
)
def test_hidden_folders_are_read_only_if_they_are_spelled(
    tmp_path: Path, pattern: str, read: set[str]
) -> None:
    for name in ("in/a", "in/day/b", "in/_temporary/c", ".hidden/in/d"):
        put(tmp_path / name)
    put(tmp_path / "in/_temporary/.e")

    assert listed(tmp_path / pattern) == (read, set())


def test_a_bracket_below_a_folder_with_a_colon_does_not_hold_up_others(
    tmp_path: Path,
) -> None:
    put(tmp_path / "10:00" / "[a]")
    put(tmp_path / "10:00" / "b")

    assert listed(tmp_path) == ({"b"}, {"[a]"})


def test_a_link_to_a_directory_is_told(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "a")
    put(tmp_path / "in" / "b")
    (tmp_path / "in/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    (tmp_path / "in/_hidden").symlink_to(tmp_path / "elsewhere")

    assert listed(tmp_path / "in") == ({"b"}, {"link", "loop"})
    # A path that names it means it.
    assert listed(tmp_path / "in/link") == ({"a"}, set())
    assert listed(tmp_path / "in/li*") == ({"a"}, set())


@pytest.fixture
def unlistable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let listing one folder fail; root may list any."""
    put(tmp_path / "in" / "a")
    put(tmp_path / "in" / "day" / "b")
    real = os.scandir

    def fails(folder: str, number: int) -> None:
        def scandir(path: Any = ".") -> Any:
            if str(path) == str(tmp_path / folder):
                raise OSError(number, os.strerror(number), str(path))
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)

    return fails


def test_a_folder_that_we_may_not_list_is_told(unlistable: Any, tmp_path: Path) -> None:
    unlistable("in/day", errno.EACCES)

    assert listed(tmp_path / "in") == ({"a"}, {"day"})


def test_a_folder_that_goes_meanwhile_has_nothing(
    unlistable: Any, tmp_path: Path
) -> None:
    unlistable("in/day", errno.ENOENT)

    assert listed(tmp_path / "in") == ({"a"}, set())


@pytest.mark.parametrize(
    ("path", "folder"), [("in", "in/day"), ("in", "in"), ("in/*", "in")]
)
def test_a_folder_that_does_not_answer_is_waited_for(
    unlistable: Any, tmp_path: Path, path: str, folder: str
) -> None:
    """Without its files, an input that is bounded would come to its end."""
    unlistable(folder, errno.EIO)

    with pytest.raises(SourceUnavailableError, match=str(tmp_path / folder)):
        listed(tmp_path / path)
