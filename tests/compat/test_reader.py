"""The sixty-line reader against our own, and both against what must be there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.compat.everything import (
    BEGIN,
    COLUMNS,
    GROUPS,
    LIMITS,
    Everything,
    Model,
    plain,
)
from tests.compat.reader import read

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.core.times import micros
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.state_reader import read_entries, read_variable
from riverlock.storage import LocalStorage

READER = Path(__file__).with_name("reader.py")
ROWS, PER_EPOCH, EARLY = 560, 40, 13


def _flow() -> rl.Flow:
    flow = rl.Flow("everything", key_groups=GROUPS)
    events = flow.read(rl.sources.generator(COLUMNS, rows=ROWS), uid="rows")
    other = flow.read(rl.sources.generator(LIMITS, rows=3), uid="limits")
    keyed = events.event_time("at").key_by("k")
    keyed.process(Everything(), uid="everything", broadcast=other).write(
        rl.sinks.memory()
    )
    return flow


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of fourteen epochs, the last of them two hours later."""
    path = tmp_path_factory.mktemp("compat") / "store"
    for hours, epochs in ((0, EARLY), (2, None)):
        _flow().run(
            str(path),
            spark=spark,
            available_now=True,
            parallelism=2 + hours,
            max_rows_per_epoch=PER_EPOCH,
            max_epochs=epochs,
            clock=ManualClock(micros(BEGIN + timedelta(hours=hours))),
        )
    Catalog(LocalStorage(path)).pin("early", epoch=5, now_us=0)
    return path


@pytest.mark.spark
def test_reader_gives_the_state_of_every_retained_epoch(store: Path) -> None:
    catalog = Catalog(LocalStorage(store))
    model, epochs = Model(), catalog.epochs()

    assert len(epochs) >= ROWS // PER_EPOCH
    for epoch in epochs:
        read_rows = catalog.manifest(epoch).inputs["rows"]
        now = BEGIN + timedelta(hours=0 if epoch < EARLY else 2)
        for n in range(read_rows.start["row"], read_rows.end["row"]):
            model.row(n, now)

        assert plain(read(store, "everything", str(epoch))) == model.view(now), epoch


@pytest.mark.spark
def test_reader_agrees_with_ours_entry_by_entry(store: Path) -> None:
    catalog = Catalog(LocalStorage(store))
    for epoch in catalog.epochs():
        manifest = catalog.manifest(epoch)
        state = manifest.operators["everything"]
        entries = read_entries(catalog.storage, state, now_us=manifest.now_us)
        assert entries is not None
        theirs = read(store, "everything", str(epoch))

        for name in [*state.variables, "timers"]:
            ours = read_variable(entries, state, name).to_pylist()
            shared = name in ("limits", "version")  # these have no key in front
            assert [list(_values(e["value"])) for e in theirs[name]] == [
                list(r.values())[0 if shared else 1 :] for r in ours
            ]


def _values(value: Any) -> Iterator[Any]:
    is_entry = isinstance(value, dict) and {"value", "at"} & value.keys()
    yield from value.values() if is_entry else [value]


@pytest.mark.spark
def test_reader_is_a_program_of_sixty_lines_without_riverlock(store: Path) -> None:
    text = READER.read_text()
    command = [sys.executable, str(READER), str(store), "everything", "early"]

    printed = subprocess.run(command, capture_output=True, text=True, check=True)

    assert json.loads(printed.stdout)["version"][0]["value"] == 3
    assert len(text.splitlines()) <= 60
    assert "import riverlock" not in text
    assert "from riverlock" not in text
