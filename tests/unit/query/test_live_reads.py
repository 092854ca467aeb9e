"""Whoever reads state while a flow runs sees one epoch, whole, or is told to retry."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.unit.driver.ledger_flow import balance, ledger, transfers
from tests.unit.query.live_flow import read_live, swapping, swaps

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage


class Beside:
    """Calls a function in a thread of its own, again and again."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._over = threading.Event()
        self._error: BaseException | None = None
        self.found: list[Any] = []
        self._thread = threading.Thread(target=self._work, name="reads beside")

    def _work(self) -> None:
        try:
            while not self._over.is_set():
                self.found.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            self._error = error

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def test_each_read_of_a_running_flow_is_one_epoch(tmp_path: Path) -> None:
    store, given = str(tmp_path / "s"), swaps(40)
    handle = swapping(given).start(
        store,
        execution="local",
        max_rows_per_epoch=10,
        retain_epochs=2,  # epochs go away while they are read
        grace="0 seconds",
        parallelism=4,
    )
    with Beside(lambda: read_live(store)) as reader:
        for number in range(12):
            given += swaps(len(given) + 40)[len(given) :]
            handle.rescale(1 + number % 4)
            before = max(seen(reader), default=-1)
            wait_until(lambda before=before: max(seen(reader), default=-1) > before)
        handle.stop()
    epochs = seen(reader)
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 5
    assert read_live(store) is not None


def last(reader: Beside) -> tuple[str, ...]:
    """Return the names that were found last; none before the first look."""
    return reader.found[-1] if reader.found else ()


def seen(reader: Beside) -> list[int]:
    """Return the epochs that were read, without what must be read again."""
    return [epoch for epoch in reader.found if epoch is not None]


def wait_until(holds: Any) -> None:
    limit = threading.Event()
    timer = threading.Timer(120, limit.set)
    timer.start()
    while not holds():
        assert not limit.wait(0.005), "nothing came"
    timer.cancel()


def test_each_named_cut_of_running_regions_is_whole_when_it_is_seen(
    tmp_path: Path,
) -> None:
    store, given = str(tmp_path / "s"), transfers(60)
    handle = ledger(given).start(
        store, execution="local", max_rows_per_epoch=10, retain_epochs=2, grace="0 s"
    )
    storage = open_storage(store)

    def read() -> tuple[str, ...]:
        found = Catalog(storage).snapshots()
        for named in found:
            debited, accounted = balance(store, named)
            assert debited == accounted, named
        return tuple(named.name for named in found)

    with Beside(read) as reader:
        for number in range(4):
            given += transfers(len(given) + 30)[len(given) :]
            handle.rescale(1 + number)
            handle.savepoint(f"v{number}", protocol="unaligned")
            wanted = number + 1
            wait_until(lambda wanted=wanted: len(last(reader)) >= wanted)
        handle.stop()
    assert reader.found[-1] == ("v0", "v1", "v2", "v3")
    assert rl.stores.verify(store).is_whole
