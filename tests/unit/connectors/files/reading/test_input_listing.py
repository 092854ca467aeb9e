"""Which files of a path are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from riverlock.connectors.files.reading.input_listing import Listing


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
