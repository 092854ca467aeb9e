"""What crashes leave behind goes away, and stands in nobody's way meanwhile."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.coordinator.builders import make_plan

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.builtin_committers import FileCommitter
from riverlock.driver.cleaner import Cleaner
from riverlock.driver.ownership import Heartbeat
from riverlock.driver.region_loop import RegionDriver
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import Manifest, SinkOutput
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage.base import Reason
from riverlock.storage.local import LocalStorage

pytestmark = pytest.mark.chaos


def _temporary(root: Path) -> Path:
    """Leave what a process leaves that is killed between write and rename."""
    path = root / ".tmp" / "0123456789abcdef"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    return path


def _manifest(epoch: int) -> Manifest:
    numbers: dict[str, Any] = dict.fromkeys(
        ("started_us", "decided_us", "now_us", "seed"), 0
    )
    return Manifest(
        format=1,
        flow="f",
        region="main",
        epoch=epoch,
        parent=None,
        run=1,
        parallelism=1,
        key_groups=1,
        code="",
        **numbers,
    )


def test_sweep_removes_temporary_files_after_the_grace(store: LocalStorage) -> None:
    left = _temporary(store.root)
    catalog = Catalog(store)
    catalog.decide(_manifest(0))

    # However short the grace is: a sweep runs beside the loop, which writes meanwhile.
    for grace in (timedelta(hours=1), timedelta(0)):
        sweep(catalog, Retention(grace=grace))
        assert left.exists(), "it may be of a writer that is still at it"

    os.utime(left, (1, 1))
    sweep(catalog, Retention(grace=timedelta(0)))
    assert not left.exists()


def _output(staged: str) -> SinkOutput:
    token = {"staged": staged, "name": "part-a.json", "rows": 1, "bytes": 3}
    return SinkOutput(kind="files", tokens=({**token, "checksum": "c"},), rows=1)


def _committer(root: Path) -> FileCommitter:
    committer = FileCommitter(rl.sinks.files(str(root), format="json"))
    committer.open(Owner(flow="f", sink="s", run=1))
    return committer


def test_sink_opened_by_a_new_run_removes_temporary_files(tmp_path: Path) -> None:
    left = _temporary(tmp_path / "out")

    _committer(tmp_path / "out")

    assert not left.exists()


def test_epoch_whose_folder_was_taken_away_is_committed_all_the_same(
    tmp_path: Path,
) -> None:
    # A consumer moved the epoch out; then the driver died before it said so.
    committer = _committer(tmp_path / "out")
    staged = tmp_path / "out/_riverlock/staged/000000000000/a"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(b"{}\n")
    output = _output("_riverlock/staged/000000000000/a")
    committer.commit(0, output)
    shutil.rmtree(tmp_path / "out/epoch=000000000000")

    committer.commit(0, output)

    assert not (tmp_path / "out/epoch=000000000000").exists()


class Breaking(Cleaner):
    """Meets something that nobody thought of."""

    def clean(self, manifest: Manifest) -> None:
        raise RuntimeError(manifest.epoch)


def test_cleaner_that_breaks_neither_stops_the_flow_nor_hangs_its_end(
    store: LocalStorage, caplog: pytest.LogCaptureFixture
) -> None:
    cleaner = Breaking(Catalog(store), Retention())

    for epoch in range(50):
        cleaner.offer(_manifest(epoch))
    cleaner.stop()

    assert "cleaning failed" in caplog.text


class Unreadable(LocalStorage):
    """Cannot be read for a while."""

    def get(self, path: str) -> bytes:
        raise Reason.UNREACHABLE.error("read", path)


def test_fence_that_cannot_be_read_does_not_end_the_run(
    store: LocalStorage, caplog: pytest.LogCaptureFixture
) -> None:
    # The put of the manifest is the fence; looking for a newer run is a courtesy.
    owner = claim(Catalog(store), now_us=1)
    heartbeat = Heartbeat(Catalog(Unreadable(store.root)), owner, lambda: None)
    nothing: Any = None
    driver = RegionDriver(
        plan=make_plan(),
        catalog=Catalog(store),
        engine=nothing,
        planner=nothing,
        committers={},
        heartbeat=heartbeat,
        cleaner=nothing,
        clock=nothing,
    )

    assert driver._fenced() is None
    assert "could not be reached" in caplog.text
