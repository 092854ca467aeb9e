"""A start that waits for its sources: it is seen, told, and can be stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

import riverlock as rl
from riverlock.cli import main
from riverlock.coordinator.restart import ExponentialDelay, NoRestart
from riverlock.core.clock import ManualClock
from riverlock.core.errors import (
    InvalidConfigError,
    SourceError,
    SourceUnavailableError,
)
from riverlock.driver import region_run, runner
from riverlock.driver.run_options import RunOptions
from riverlock.driver.starting.source_wait import SourceWait
from riverlock.flow.inside import program_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Start, Stop
from riverlock.snapshot.format.requests import add_request
from riverlock.snapshot.starts import announced, starts
from riverlock.storage import LocalStorage

AWAY = SourceUnavailableError("in", what="Kafka at host:9092 does not answer")
POLICY = ExponentialDelay(initial_us=1_000_000, max_us=30_000_000, attempts=3)
NOON_US = 1_767_268_800_000_000  # 2026-01-01T12:00:00Z


class Source:
    """Does not answer the first calls."""

    def __init__(self, tries: int) -> None:
        self.left = tries

    def ask(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise AWAY
        return "answer"


def waited(
    store: Path, source: Source, meanwhile: Callable[[float], None], **more: Any
) -> Any:
    catalog, clock = Catalog(LocalStorage(store)), ManualClock(NOON_US)
    with announced(catalog, now_us=NOON_US) as start:
        wait = SourceWait(catalog, clock, announce=lambda: start, pause=meanwhile)
        return wait.until_answered(source.ask, more.get("policy", POLICY))


def status(store: Path) -> str:
    return CliRunner().invoke(main, ["status", str(store)]).output


def test_status_and_log_tell_what_a_start_waits_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    caplog.set_level(logging.WARNING)

    found = waited(tmp_path, Source(3), lambda _: seen.append(status(tmp_path)))

    assert found == "answer"
    assert len(seen) == 1 + 2 + 4  # the delays, a second at a time
    for text in seen:
        assert "starting" in text
        assert "waiting for a source since 2026-01-01T12:00:00Z: could not" in text
        assert "source 'in': Kafka at host:9092 does not answer" in text
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 3
    assert all("source 'in'" in text for text in told)


def test_what_answers_is_not_said_to_be_waited_for(tmp_path: Path) -> None:
    catalog = Catalog(LocalStorage(tmp_path))
    with announced(catalog, now_us=NOON_US) as start:
        wait = SourceWait(
            catalog, ManualClock(), announce=lambda: start, pause=lambda _: None
        )

        wait.until_answered(Source(1).ask, POLICY)

        assert "starting" in status(tmp_path)
        assert "waiting" not in status(tmp_path)


def test_a_start_on_another_machine_is_believed_while_it_says_that_it_waits(
    tmp_path: Path,
) -> None:
    catalog, clock = Catalog(LocalStorage(tmp_path)), ManualClock(NOON_US)
    there = Start(id="a", host="elsewhere", pid=1, started_us=NOON_US)

    def look(_: float) -> None:
        clock.advance("9 minutes")
        assert [s.id for s in starts(catalog, now_us=clock.now_us())] == ["a"]

    wait = SourceWait(catalog, clock, announce=lambda: there, pause=look)
    patient = ExponentialDelay(initial_us=1, max_us=1, attempts=1)
    assert wait.until_answered(Source(5).ask, patient) == "answer"

    clock.advance("11 minutes")
    assert not starts(catalog, now_us=clock.now_us())


def test_a_start_that_waits_ends_within_a_second_when_asked(tmp_path: Path) -> None:
    catalog, pauses = Catalog(LocalStorage(tmp_path)), list[float]()

    def ask_to_stop(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) == 9:
            (start,) = starts(catalog, now_us=NOON_US)
            asked = Stop(run=0, start=start.id, savepoint="kept")
            add_request(catalog, Stop(run=0, start="another"), now_us=NOON_US)
            add_request(catalog, asked, now_us=NOON_US)

    found = waited(tmp_path, Source(1_000), ask_to_stop)

    assert isinstance(found, Stop)
    assert found.savepoint == "kept"
    assert sum(pauses) == 9
    assert max(pauses) <= 1


@pytest.mark.parametrize(
    ("error", "policy"), [(SourceError("in", what="no"), POLICY), (AWAY, NoRestart())]
)
def test_what_is_not_waited_for_is_raised(
    tmp_path: Path, error: SourceError, policy: Any
) -> None:
    class Wrong(Source):
        def ask(self) -> str:
            raise error

    with pytest.raises(SourceError) as caught:
        waited(tmp_path, Wrong(0), lambda _: None, policy=policy)

    assert caught.value is error


def test_a_flow_that_is_stopped_while_it_waits_ends_without_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Any:
        raise AWAY

    monkeypatch.setattr(region_run, "readers_of", lambda *_: {})
    monkeypatch.setattr(region_run, "compiled_on", away)
    catalog, options = Catalog(LocalStorage(tmp_path)), RunOptions()
    engine: Any = MagicMock(opens_slowly=False, **{"lost.return_value": None})

    flow = program_of(rl.Flow("shop"))

    with announced(catalog, now_us=NOON_US) as start:
        add_request(catalog, Stop(run=0, start=start.id), now_us=NOON_US)
        status = runner.run(flow, str(tmp_path), engine, options)
        handle = runner.start(flow, str(tmp_path), engine, options)

        assert (status.state, status.run, status.epoch) == ("stopped", None, None)
        assert handle.wait(60)
        assert catalog.newest_run() is None


@pytest.fixture
def waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Exception], Callable[[], Any]]:
    """What compiling a flow raises, one after the other, and a start of it."""
    errors: list[Exception] = [AWAY]

    def away(*_: Any) -> Any:
        raise errors[0] if len(errors) == 1 else errors.pop(0)

    monkeypatch.setattr(region_run, "readers_of", lambda *_: {})
    monkeypatch.setattr(region_run, "compiled_on", away)
    engine: Any = MagicMock(opens_slowly=False, **{"lost.return_value": None})
    options = RunOptions(restart=ExponentialDelay(initial_us=1, max_us=1, attempts=9))
    flow = program_of(rl.Flow("shop"))
    return errors, lambda: runner.start(flow, str(tmp_path), engine, options)


def test_a_handle_is_there_while_a_start_waits(
    tmp_path: Path, waiting: tuple[list[Exception], Callable[[], Any]]
) -> None:
    handle = waiting[1]()

    assert handle.is_active
    found = handle.status()
    assert (found.state, found.run, found.epoch) == ("starting", None, None)
    assert "Kafka at host:9092 does not answer" in found.error
    with pytest.raises(InvalidConfigError, match="to have begun"):
        handle.rescale(2)
    with pytest.raises(InvalidConfigError, match="to have begun"):
        handle.set("op", limit=3)
    handle.stop(60)
    assert not handle.is_active
    assert handle.status().state == "stopped"
    assert Catalog(LocalStorage(tmp_path)).newest_run() is None
    assert "starting" not in status(tmp_path)


def test_a_start_that_waited_and_is_refused_then_is_told_by_its_handle(
    waiting: tuple[list[Exception], Callable[[], Any]],
) -> None:
    errors, start = waiting
    errors[:] = [AWAY, AWAY, AWAY, SourceError("in", what="it was made anew")]
    handle = start()

    with pytest.raises(SourceError, match="made anew"):
        handle.wait(60)


def test_what_is_refused_at_once_is_told_by_the_start(
    waiting: tuple[list[Exception], Callable[[], Any]],
) -> None:
    errors, start = waiting
    errors[:] = [SourceError("in", what="it was made anew")]

    with pytest.raises(SourceError, match="made anew"):
        start()
