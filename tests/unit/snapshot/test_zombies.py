"""A driver that slept before it decided an epoch wakes when its number is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.snapshot.small_flow import Row, SmallFlow, output_of, state_of

import riverlock as rl
from riverlock.core.errors import FencedError
from riverlock.snapshot import claims
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Manifest
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs.inspection import inspect

ROWS: list[Row] = [(f"k{n % 3}", n) for n in range(36)]
TIGHT = Retention(epochs=2, grace=timedelta(0))


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallFlow:
    # All drivers are of this process: the heart of one that sleeps would beat on.
    monkeypatch.setattr(claims, "_is_alive", lambda *_: False)
    return SmallFlow(tmp_path / "store", list(ROWS), tmp_path / "out")


@pytest.fixture
def sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int, Callable[[], None]], None]:
    """Return what makes the next decision of an epoch wait for something else."""
    decide = Catalog.decide
    waits: dict[int, Callable[[], None]] = {}

    def slow(self: Catalog, made: Manifest) -> bool:
        meanwhile = waits.pop(made.epoch, None)
        if meanwhile is not None:
            meanwhile()
        return decide(self, made)

    monkeypatch.setattr(Catalog, "decide", slow)
    return waits.__setitem__


Sleeps = Callable[[int, Callable[[], None]], None]


def others_go_on(flow: SmallFlow) -> None:
    """Another driver runs to the end of the rows, and keeps two epochs."""
    flow.run(epochs=5, retention=TIGHT)
    sweep(flow.catalog, TIGHT)


def check(flow: SmallFlow, *, kept: frozenset[int] = frozenset()) -> None:
    """Whatever comes after, each number was decided once, and nothing is lost."""
    assert inspect(flow.catalog).is_whole
    assert set(flow.catalog.epochs()) - kept == {6, 7}
    flow.run(retention=TIGHT)
    assert flow.output() == output_of(ROWS)
    assert flow.state() == state_of(ROWS)
    assert not list(flow.out.glob("_riverlock/aside/*"))


def test_a_zombie_loses_though_its_number_was_deleted(
    flow: SmallFlow, sleeps: Sleeps
) -> None:
    flow.run(epochs=3)
    sleeps(3, lambda: others_go_on(flow))

    with pytest.raises(FencedError):
        flow.run()

    check(flow)


def test_a_newer_run_loses_to_an_older_one_whose_epoch_was_deleted(
    flow: SmallFlow, sleeps: Sleeps
) -> None:
    """Both sleep before the same put; the older one wakes first, and decides."""
    flow.run(epochs=3)
    asleep, awake = threading.Event(), threading.Event()
    ended: list[Exception] = []

    def fall_asleep() -> None:
        asleep.set()
        assert awake.wait(60)

    def newer() -> None:
        try:
            flow.run()
        except FencedError as error:
            ended.append(error)

    thread = threading.Thread(target=newer)

    def a_newer_run_begins() -> None:
        sleeps(3, fall_asleep)
        thread.start()
        assert asleep.wait(60)

    sleeps(3, a_newer_run_begins)
    with pytest.raises(FencedError):
        flow.run()
    flow.run(epochs=4, retention=TIGHT)
    sweep(flow.catalog, TIGHT)
    awake.set()
    thread.join()

    assert ended
    check(flow)


def test_a_restore_loses_though_its_number_was_deleted(
    flow: SmallFlow, sleeps: Sleeps
) -> None:
    flow.run(epochs=3)
    sleeps(3, lambda: others_go_on(flow))

    with pytest.raises(rl.RiverlockError):
        rl.stores.restore(f"{flow.store}@1")

    check(flow, kept=frozenset({1}))
