"""A list of files that a plan writes again is not swept with the one of a dead run."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from tests.unit.snapshot.builders import catalog, manifest

import riverlock as rl
from riverlock.connectors.files.reading.reader import _MAX_RECENT, FilesReader
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim, release
from riverlock.snapshot.format.records import InputRange
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage import LocalStorage

NO_SPARK: Any = None


def planned(store: Catalog, folder: Path) -> dict[str, Any]:
    """Return the offset after more files than an offset lists by itself."""
    source: Any = rl.sources.files(str(folder), format="json", schema="k string")
    reader = FilesReader(NO_SPARK, source, "in", (store.storage, store.paths))
    read = [(f"{n}.json", 1, "e") for n in range(_MAX_RECENT + 1)]
    start = {"count": len(read), "base": None, "recent": read, "path": str(folder)}
    found: dict[str, Any] = reader._offset(start, [])
    return found


def test_a_sweep_spares_the_list_that_is_written_again(tmp_path: Path) -> None:
    store = catalog(LocalStorage(tmp_path / "store"))
    dead = claim(store, now_us=1)
    store.decide(manifest(1))
    left_behind = planned(store, tmp_path)["base"]
    os.utime(tmp_path / "store" / left_behind, (1, 1))
    release(store, dead)
    run = claim(store, now_us=2)

    again = planned(store, tmp_path)
    later = datetime.now(UTC) + timedelta(days=3)
    sweep(store, Retention(epochs=2, grace=timedelta(0)), now=later)
    span = InputRange(start=None, end=again, rows=1)
    made = msgspec.structs.replace(manifest(2), run=run.run, inputs={"in": span})
    assert store.decide(made)

    assert not store.storage.exists(left_behind)
    store.check_whole(2)
