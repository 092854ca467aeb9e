"""An input whose system is away is waited for, on the engine's own loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import numbers
from tests.chaos.bare import BareRun
from tests.chaos.beside import Statuses

from riverlock.connectors.base.stager import Stager
from riverlock.core.errors import SourceError, SourceUnavailableError
from riverlock.driver.region_loop import RegionDriver
from riverlock.snapshot.catalog import Catalog
from riverlock.storage import LocalStorage
from riverlock.worker.task import Place

AWAY = SourceUnavailableError("in", what="Kafka at host:9092 does not answer: gone")
WRONG = SourceError("in", what="topic t was deleted")
LIMIT = 3 * numbers.EPOCH_ROWS
OFTEN = 8  # more than an epoch may fail


@dataclass
class Moody(numbers.Counter):
    """Answers some calls with errors, in the driver and in tasks."""

    planning: Iterator[Exception | None] = field(default_factory=lambda: iter(()))
    reading: Iterator[Exception | None] = field(default_factory=lambda: iter(()))

    def latest(self, start: int) -> int:
        _raise(self.planning)
        return super().latest(start)


def _raise(moods: Iterator[Exception | None]) -> None:
    error = next(moods, None)
    if error is not None:
        raise error


def bare(folder: Path, reader: Moody, statuses: Statuses) -> BareRun:
    def engine(place: Place, stagers: Mapping[str, Stager]) -> Any:
        inner = numbers.TwoTasks(place, stagers)

        @dataclass
        class Engine:
            def run_stage(self, *order: Any) -> Any:
                _raise(reader.reading)
                return inner.run_stage(*order)

        return Engine()

    return BareRun(
        store=folder / "store",
        sinks=numbers.file_sinks(str(folder / "out")),
        schemas=numbers.SCHEMAS,
        reader=reader,
        engine=engine,
        rows=numbers.EPOCH_ROWS,
        tasks=numbers.TASKS,
        attempts=2,
        on_status=statuses.add,
    )


def end_of(folder: Path) -> Any:
    newest = Catalog(LocalStorage(folder / "store")).newest()
    return None if newest is None else newest.inputs["in"].end


@pytest.mark.parametrize("where", ["planning", "reading"])
def test_it_is_waited_for_longer_than_an_epoch_may_fail(
    where: str, tmp_path: Path
) -> None:
    moods = {where: iter([AWAY] * OFTEN)}
    statuses = Statuses()

    bare(tmp_path, Moody(LIMIT, **moods), statuses).to_the_end()

    states = [s.state for s in statuses.all]
    assert states.count("waiting") == OFTEN
    assert states[-1] == "stopped"
    told = next(s for s in statuses.all if s.state == "waiting")
    assert told.error is not None
    assert "waiting for source 'in'" in told.error
    assert "host:9092 does not answer" in told.error
    assert end_of(tmp_path) == LIMIT


def test_tasks_are_not_tried_before_the_source_answers_the_driver(
    tmp_path: Path,
) -> None:
    tried = []

    def reading() -> Iterator[Exception | None]:
        for answer in (AWAY, None, None, None):
            tried.append(answer)
            yield answer

    reader = Moody(LIMIT, planning=iter([None, *[AWAY] * OFTEN]), reading=reading())
    bare(tmp_path, reader, Statuses()).to_the_end()

    assert len(tried) == 1 + LIMIT // numbers.EPOCH_ROWS


def test_what_is_final_stays_final(tmp_path: Path) -> None:
    reader = Moody(LIMIT, planning=iter([AWAY, WRONG]))
    statuses = Statuses()

    with pytest.raises(SourceError, match="was deleted"):
        bare(tmp_path, reader, statuses).to_the_end()

    assert [s.state for s in statuses.all][-2:] == ["waiting", "failed"]


def idle(folder: Path, reader: Moody, statuses: Statuses, stack: ExitStack) -> Any:
    """Return a driver that goes on at the end of its input, and its thread."""
    driver: RegionDriver = bare(folder, reader, statuses)._driver(stack)
    driver.planner = replace(driver.planner, stops_at_end=False)
    thread = threading.Thread(target=driver.run)
    thread.start()
    return driver, thread


def test_an_idle_run_says_that_it_waits_and_that_it_goes_on(tmp_path: Path) -> None:
    statuses, answers = Statuses(), threading.Event()

    def planning() -> Iterator[Exception | None]:
        yield from [None] * 5  # three epochs, and nothing more to read
        while not answers.is_set():
            yield AWAY

    with ExitStack() as stack:
        reader = Moody(LIMIT, planning=planning())
        driver, thread = idle(tmp_path, reader, statuses, stack)
        waiting = statuses.wait_for(lambda s: s.state == "waiting")
        answers.set()
        statuses.wait_for_last(lambda s: s.state == "running" and s.error is None)
        driver.stop()
        thread.join()

    assert waiting.epoch == 2
    assert statuses.all[-1].state == "stopped"
    assert end_of(tmp_path) == LIMIT


def test_a_run_that_waits_can_be_stopped(tmp_path: Path) -> None:
    statuses = Statuses()

    def planning() -> Iterator[Exception | None]:
        while True:
            yield AWAY

    with ExitStack() as stack:
        reader = Moody(LIMIT, planning=planning())
        driver, thread = idle(tmp_path, reader, statuses, stack)
        statuses.wait_for(lambda s: s.state == "waiting")
        driver.stop()
        thread.join()

    assert (statuses.all[-1].state, statuses.all[-1].error) == ("stopped", None)
