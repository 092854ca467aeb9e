"""What the cleaner of a run finds at its start."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.snapshot.small_flow import SmallFlow, output_of

from riverlock.snapshot.verbs.inspection import QUARANTINE

ROWS = [(f"k{n % 5}", n) for n in range(6)]


def test_a_damaged_record_of_merged_files_is_moved_aside_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out")
    flow.run(1)
    record = f"{flow.catalog.paths.merged}{'0' * 32}.json"
    flow.catalog.storage.put(record, b'{"operator": "op", "repl')

    flow.run()

    assert flow.output() == output_of(ROWS)
    assert not (flow.store / record).exists()
    assert (flow.store / f"{QUARANTINE}merged" / record).exists()
    assert record in caplog.text
    assert "cleaning failed" not in caplog.text
