"""A worker of Spark is killed: only `at least once` repeats rows."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.core.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE

pytestmark = pytest.mark.spark

ROWS = 60


class Seen(rl.Process):
    """Counts, and kills its worker once, where it is told to."""

    output = "n long"
    count = rl.Value("long", default=0)

    def __init__(self, fuse: str) -> None:
        self.fuse = fuse

    def on_event(self, event: Any, ctx: Any) -> Any:
        self.count += 1
        if self.fuse and event.n == ROWS // 2 and not Path(self.fuse).exists():
            Path(self.fuse).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield (event.n,)


def append(path: str, dies_at: int, row: dict[str, Any], _id: str) -> None:
    """Add a row to a file; kill the worker behind one, the first time."""
    file = Path(path)
    with file.open("a") as out:
        out.write(json.dumps(row["n"]) + "\n")
    if row["n"] == dies_at and not file.with_suffix(".fuse").exists():
        file.with_suffix(".fuse").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def left(path: Path) -> Counter[int]:
    return Counter(map(json.loads, path.read_text().splitlines()))


def test_rows_after_a_worker_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    loose, rare, store = tmp_path / "loose", tmp_path / "rare", str(tmp_path / "s")
    flow = rl.Flow("killed", key_groups=4)
    read = flow.read(rl.sources.generator({"n": "id"}, rows=ROWS), uid="in")
    # Its worker dies between two rows that it delivers.
    read.region("loose", guarantee=AT_LEAST_ONCE, uid="to-loose").key_by("n").process(
        Seen(""), uid="seen-loose"
    ).write(rl.sinks.for_each_row(partial(append, str(loose), ROWS // 2)), uid="loose")
    # Here rows leave in the driver, so a worker that dies takes none with it.
    read.region("rare", guarantee=AT_MOST_ONCE, uid="to-rare").key_by("n").process(
        Seen(str(tmp_path / "fuse")), uid="seen-rare"
    ).write(rl.sinks.for_each_row(partial(append, str(rare), -1)), uid="rare")

    flow.run(store, spark=spark, available_now=True, parallelism=2)

    assert loose.with_suffix(".fuse").exists()
    assert (tmp_path / "fuse").exists()
    assert left(loose).keys() == set(range(ROWS))
    assert max(left(loose).values()) > 1
    assert left(rare) == Counter(range(ROWS))
    for uid in ("seen-loose", "seen-rare"):
        state = rl.open(store).state(uid).to_arrow().to_pylist()
        assert {row["n"]: row["count"] for row in state} == dict.fromkeys(
            range(ROWS), 1
        )
