"""Files whose names were read before, and whose rows are new."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.snapshot.builders import catalog

import riverlock as rl
from riverlock.connectors.files.reading.reader import FilesReader
from riverlock.storage import LocalStorage

NO_SPARK: Any = None


@pytest.fixture
def reader(tmp_path: Path) -> FilesReader:
    (tmp_path / "in").mkdir()
    store = catalog(LocalStorage(tmp_path / "store"))
    source: Any = rl.sources.files(str(tmp_path / "in"), format="text")
    return FilesReader(NO_SPARK, source, "in", (store.storage, store.paths))


def put(tmp_path: Path, name: str, text: str, at: int = 1_000) -> None:
    (tmp_path / "in" / name).write_text(text)
    os.utime(tmp_path / "in" / name, (at, at))


def read_all(reader: FilesReader, start: Any = None) -> Any:
    """Return the position behind all files."""
    start = reader.initial() if start is None else start
    return reader.advance(start, reader.latest(start), 1_000)


@pytest.mark.parametrize(
    ("text", "at"), [("one\ntwo\n", 1_000), ("two\n", 2_000), ("two\ntwo\n", 2_000)]
)
@pytest.mark.parametrize("is_later_run", [False, True])
def test_a_name_that_comes_again_is_told_once(
    reader: FilesReader,
    tmp_path: Path,
    text: str,
    at: int,
    is_later_run: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(tmp_path, "daily.txt", "one\n")
    position = read_all(reader)
    if is_later_run:
        reader = FilesReader(
            NO_SPARK, reader._source, "in", (reader._storage, reader._paths)
        )
    put(tmp_path, "daily.txt", text, at)

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert read_all(reader, position) == position
    assert caplog.text.count("daily.txt is not read again") == 1
    assert reader.observed(0) == {"files_set_aside": 1.0}


def test_files_that_stay_as_they_are_are_not_told(
    reader: FilesReader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "a.txt", "one\n")
    position = read_all(reader)
    put(tmp_path, "b.txt", "two\n")

    later = read_all(reader, position)
    assert read_all(reader, later) == later
    assert later["count"] == 2
    assert not caplog.records
    assert reader.observed(0) == {}
