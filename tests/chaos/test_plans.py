"""A plan that did not become an epoch must not use up its input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import riverlock as rl
from riverlock.connectors.files.reading.reader import FilesReader
from riverlock.snapshot.format.store_layout import RegionPaths
from riverlock.storage.local import LocalStorage


def _reader(tmp_path: Path) -> FilesReader:
    source = rl.sources.files(str(tmp_path / "in"), format="text")
    place = LocalStorage(tmp_path / "store"), RegionPaths("main")
    nothing: Any = None
    return FilesReader(nothing, source, "lines", place)


def _arrive(tmp_path: Path, *names: str) -> None:
    (tmp_path / "in").mkdir(exist_ok=True)
    for number, name in enumerate(names):
        path = tmp_path / "in" / name
        path.write_text("line\n")
        os.utime(path, (1_000 + number, 1_000 + number))


def _names(offset: Any) -> list[str]:
    return [Path(entry[0]).name for entry in offset["recent"]]


def test_files_of_a_plan_that_was_dropped_are_planned_again(tmp_path: Path) -> None:
    # Another source of the epoch could not tell where it is: the whole plan is dropped.
    _arrive(tmp_path, "a", "b")
    reader = _reader(tmp_path)
    start = reader.initial()
    reader.advance(start, reader.latest(start), 1_000)

    end = reader.advance(start, reader.latest(start), 1_000)

    assert _names(end) == ["a", "b"]


def test_files_of_an_epoch_that_lost_its_race_are_planned_after_it(
    tmp_path: Path,
) -> None:
    # We planned both files; a run before us, thought dead, decided the epoch with one.
    _arrive(tmp_path, "a", "b")
    zombie, reader = _reader(tmp_path), _reader(tmp_path)
    start = reader.initial()
    reader.advance(start, reader.latest(start), 1_000)
    decided = zombie.advance(start, {"count": 1}, 1_000) if zombie.latest(start) else 0

    end = reader.advance(decided, reader.latest(decided), 1_000)

    assert _names(decided) == ["a"]
    assert _names(end) == ["a", "b"]


def test_files_taken_at_the_start_are_all_read_when_a_plan_is_dropped(
    tmp_path: Path,
) -> None:
    # available_now asks for the latest offset once.
    _arrive(tmp_path, "a", "b", "c")
    reader = _reader(tmp_path)
    start = reader.initial()
    latest = reader.latest(start)
    reader.advance(start, latest, 0)

    first = reader.advance(start, latest, 0)
    second = reader.advance(first, latest, 1_000)

    assert _names(first) == ["a"]
    assert _names(second) == ["a", "b", "c"]
