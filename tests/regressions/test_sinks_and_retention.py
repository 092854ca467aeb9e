"""Sinks and retention: holes found by a review before the release."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from riverlock.core.errors import CommitRejectedError, SinkError
from riverlock.sinks import files as file_sink
from riverlock.sinks.committer import Owner
from riverlock.sinks.committers import FileCommitter
from riverlock.sinks.stager import StagePoint
from riverlock.sinks.stagers import FileStager
from riverlock.snapshot.records import SinkOutput
from riverlock.storage import LocalStorage


def test_null_and_empty_partition_values_can_be_committed(
    tmp_path: Path, store: LocalStorage
) -> None:
    out = tmp_path / "out"
    stager = FileStager(path=str(out), format="json", partition_by=("p",))
    committer = FileCommitter(file_sink(str(out), format="json", partition_by="p"))
    committer.open(Owner(flow="f", sink="s", run=1))
    table = pa.table({"p": pa.array([None, ""], pa.string()), "n": [1, 2]})
    point = StagePoint(storage=store, folder="staged", epoch=0, attempt="a")
    tokens = tuple(stager.stage(table, point))

    committer.commit(0, SinkOutput(kind="files", tokens=tokens, rows=2))

    lines = [p.read_text() for p in out.glob("epoch=*/**/*.json")]
    assert "".join(lines).count("\n") == 2


def test_nan_partition_values_can_be_committed(
    tmp_path: Path, store: LocalStorage
) -> None:
    out = tmp_path / "out"
    stager = FileStager(path=str(out), format="json", partition_by=("p",))
    committer = FileCommitter(file_sink(str(out), format="json", partition_by="p"))
    committer.open(Owner(flow="f", sink="s", run=1))
    table = pa.table({"p": [float("nan"), float("nan")], "n": [1, 2]})
    point = StagePoint(storage=store, folder="staged", epoch=0, attempt="a")
    tokens = tuple(stager.stage(table, point))

    committer.commit(0, SinkOutput(kind="files", tokens=tokens, rows=2))


def _stage(out: Path, store: LocalStorage, epoch: int, *names: str) -> tuple[Any, ...]:
    """Stage one row for each name: what an epoch of so many tasks does."""
    stager = FileStager(path=str(out), format="json", partition_by=())
    return tuple(
        token
        for name in names
        for token in stager.stage(
            pa.table({"n": [name]}),
            StagePoint(storage=store, folder="staged", epoch=epoch, attempt=name),
        )
    )


def _committer(out: Path, run: int = 1) -> FileCommitter:
    committer = FileCommitter(file_sink(str(out), format="json"))
    committer.open(Owner(flow="f", sink="s", run=run))
    return committer


def _output(tokens: tuple[Any, ...]) -> SinkOutput:
    return SinkOutput(kind="files", tokens=tokens, rows=len(tokens))


def test_an_epoch_decided_with_one_name_twice_is_committed(
    tmp_path: Path, store: LocalStorage
) -> None:
    out = tmp_path / "out"
    tokens = tuple({**t, "name": "p=x/a.json"} for t in _stage(out, store, 0, "a", "b"))
    committer = _committer(out)

    committer.commit(0, _output(tokens))

    record = json.loads((out / "_riverlock/000000000000.json").read_text())
    listed = [(out / f["path"]).read_text() for f in record["files"]]
    assert listed == ['{"n":"a"}\n', '{"n":"b"}\n']


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_run_that_slept_while_building_shows_no_part_of_an_epoch(
    tmp_path: Path,
    store: LocalStorage,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
    nth: int,
) -> None:
    out = tmp_path / "out"
    output = _output(_stage(out, store, 0, "a", "b"))
    old = _committer(out)
    real, calls = os.link, 0

    def link(source: Any, target: Any) -> None:
        nonlocal calls
        if "building" in str(target):
            calls += 1
            if calls == nth:
                new = _committer(out, run=2)
                if is_committed:
                    new.commit(0, output)
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(SinkError) as caught:
        old.commit(0, output)
    assert not isinstance(caught.value, CommitRejectedError)
    assert (out / "epoch=000000000000").exists() == is_committed

    old.commit(0, output)

    assert len(list((out / "epoch=000000000000").iterdir())) == 2
    assert not list((out / "_riverlock").glob("building*/*"))


def test_a_folder_that_lost_a_file_is_not_shown(
    tmp_path: Path, store: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    output = _output(_stage(out, store, 0, "a", "b"))
    committer = _committer(out)
    real = os.link

    def link(source: Any, target: Any) -> None:
        real(source, target)
        if "building" in str(target) and "part-a" in str(target):
            Path(target).unlink()

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(SinkError):
        committer.commit(0, output)
    monkeypatch.undo()

    assert not (out / "epoch=000000000000").exists()
    committer.commit(0, output)
    assert len(list((out / "epoch=000000000000").iterdir())) == 2
