"""kill -9 of the driver while Spark's tasks work; rows 2, 5 and 36 of the matrix.

Every named point has its crash in ``tests/unit/snapshot/test_driver_kills.py``, without
Spark. Here are those that need processes of their own: a task stops in the middle of
its work, and outlives its driver. One store survives the whole sequence, since a start
of Spark is what costs.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.chaos import oracle
from tests.chaos.children import child
from tests.chaos.worker_flow import Options

from riverlock.core import faults
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(2_400)]

SIGKILLED = -9


@dataclass(frozen=True)
class Crash:
    """One start of the driver and its end.

    Attributes:
        point: Where it dies.
        at: At which hit.
        parallelism: The number of tasks of this run.
        in_worker: Workers pass the point: one stops there, the driver is killed.
        decided: Whether an epoch is durable by then.
        loses_copies: The working copies are gone when it starts.
    """

    point: str
    at: int
    parallelism: int
    in_worker: bool = False
    decided: bool = False
    loses_copies: bool = False


SEQUENCE = (
    # Five sinks have committed the first epoch, and one of them the second.
    Crash("P9", 6, 1, decided=True),
    Crash("P2", 3, 2, in_worker=True),
    Crash("P5", 2, 3, in_worker=True),
    # While rescaling, without the copies of the first runs, which would be caught up.
    Crash("R2", 1, 1, in_worker=True, loses_copies=True),
)


def test_driver_killed_beside_its_tasks_loses_and_duplicates_nothing(
    tmp_path: Path,
) -> None:
    options = Options(
        store=str(tmp_path / "store"),
        out=str(tmp_path / "out"),
        rows=2_400,
        epoch_rows=300,
    )
    ranges: dict[int, tuple[int, int]] = {}

    with _reader(options) as seen:
        for number, crash in enumerate(SEQUENCE):
            _crash(options, crash, tmp_path / f"faults-{number:02d}", ranges)
        with child(replace(options, parallelism=1)) as last:
            assert last.end() == 0, last.tail()

    verdict = oracle.check(options)
    assert verdict.lost == verdict.duplicated == 0
    assert verdict.epochs >= 8
    assert seen, "the reader saw no epoch"


def _crash(
    options: Options,
    crash: Crash,
    directory: Path,
    ranges: dict[int, tuple[int, int]],
) -> None:
    before = _decided(options)
    name = f"{crash.point}-{crash.at}"
    plan = f"{crash.point}={'pause' if crash.in_worker else 'kill'}@{crash.at}"
    chosen = replace(
        options,
        parallelism=crash.parallelism,
        worker_faults=plan if crash.in_worker else "",
    )
    if crash.loses_copies:
        _lose_working_copies(options)
    with child(
        chosen,
        driver_faults="" if crash.in_worker else plan,
        faults_dir=directory,
    ) as driver:
        if crash.in_worker:
            driver.wait_for_fault(name)
            driver.kill()
        assert driver.end() == SIGKILLED, driver.tail()
        driver.wait_for_orphans()
    assert faults.fired(directory) == [name]
    after = _decided(options)
    assert ranges.items() <= after.items(), "the past has changed"
    ranges.update(after)
    _check_cut(options, crash, before, after)


def _check_cut(
    options: Options,
    crash: Crash,
    before: dict[int, tuple[int, int]],
    after: dict[int, tuple[int, int]],
) -> None:
    """What lies on disk just after the crash is what the rule says."""
    newest = max(after, default=-1)
    out = Path(options.out)
    visible = {s: oracle.sink_epochs(out, s) for s in oracle.SINKS}
    assert all(max(v, default=-1) <= newest for v in visible.values())
    has_newest = sum(newest in v for v in visible.values())
    match crash.point:
        case "R2":
            assert after == before, "recovery alone decides nothing"
        case "P9":
            assert has_newest == 1
        case "P5":
            staged = list(out.glob(f"*/_riverlock/staged/{newest + 1:012d}/*"))
            assert staged, "nothing was staged"
        case _:
            pass
    assert len(after) - len(before) >= crash.decided


def _decided(options: Options) -> dict[int, tuple[int, int]]:
    catalog = Catalog(LocalStorage(Path(options.store)))
    found = {}
    for epoch in catalog.epochs():
        span = catalog.manifest(epoch).inputs["rows"]
        found[epoch] = (span.start["row"], span.end["row"])
    return found


def _lose_working_copies(options: Options) -> None:
    shutil.rmtree(Path(options.store) / ".working")


@contextmanager
def _reader(options: Options) -> Iterator[set[tuple[str, int]]]:
    """Read the sinks all the while: an epoch is whole when first seen (row 36)."""
    out, stop = Path(options.out), threading.Event()
    first: dict[tuple[str, int], dict[str, int]] = {}

    def look() -> None:
        for sink in oracle.SINKS:
            for folder in (out / sink).glob("epoch=*"):
                place = (sink, int(folder.name[6:]))
                if place not in first:
                    first[place] = {p.name: p.stat().st_size for p in folder.iterdir()}

    def poll() -> None:
        while not stop.wait(0.005):
            look()

    thread = threading.Thread(target=poll, name="reader")
    thread.start()
    try:
        yield first.keys()  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
    for (sink, epoch), files in first.items():
        folder = out / sink / f"epoch={epoch:012d}"
        now = {p.name: p.stat().st_size for p in folder.iterdir()}
        assert files == now, f"{sink}, epoch {epoch}, was seen half"
