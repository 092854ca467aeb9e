"""Several drivers on one store: stopped, resumed, started together, asked to end.

Rows 8, 12 and 13 of the matrix: a run number fences, whoever sleeps finds out.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.chaos import oracle
from tests.chaos.children import DEADLINE_SECONDS, Child, child
from tests.chaos.processes import wait_until
from tests.chaos.worker_flow import Options

from riverlock.core.errors import FencedError
from riverlock.driver import ownership
from riverlock.driver.ownership import Heartbeat
from riverlock.snapshot import claims
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import Manifest
from riverlock.snapshot.owner import read_beat
from riverlock.storage.local import LocalStorage

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]

FENCED = FencedError.exit_code


def _options(tmp_path: Path, **changes: object) -> Options:
    options = Options(store=str(tmp_path / "store"), out=str(tmp_path / "out"))
    return replace(options, **changes)  # type: ignore[arg-type]


def _is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def _everything(options: Options) -> dict[str, bytes]:
    """Return all that lasts, of store and sinks; working copies are a cache.

    A heart that was stopped in the middle of a beat ends it when it goes on, so the
    file of beats and those without a name yet are left out.
    """
    beats = _catalog(options).paths.owner
    return {
        str(path): path.read_bytes()
        for root in (Path(options.store), Path(options.out))
        for path in root.rglob("*")
        if path.is_file()
        and not {".working", ".tmp"}.intersection(path.parts)
        and path != Path(options.store, beats)
    }


def _catalog(options: Options) -> Catalog:
    return Catalog(LocalStorage(Path(options.store)))


def _wait_for_stop(driver: Child, name: str) -> None:
    driver.wait_for_fault(name)
    driver.wait_for(lambda: _is_stopped(driver.pid), "its stop")


def test_drivers_that_slept_through_a_takeover_change_nothing(tmp_path: Path) -> None:
    options = _options(tmp_path, rows=3_000)
    with child(options, driver_faults="P6=stop@2", faults_dir=tmp_path / "a") as first:
        _wait_for_stop(first, "P6-2")
        with child(
            options, driver_faults="P8=stop@2", faults_dir=tmp_path / "b"
        ) as second:
            _wait_for_stop(second, "P8-2")
            with child(options) as third:
                assert third.end() == 0, third.tail()
            before = _everything(options)

            for sleeper in (first, second):
                os.kill(sleeper.pid, signal.SIGCONT)
            assert first.end() == FENCED, first.tail()
            assert second.end() == FENCED, second.tail()

            # Its words may come later than its end.
            wait_until(
                lambda: "owns the flow now" in first.tail(),
                "its words",
                DEADLINE_SECONDS,
            )
            assert _everything(options) == before
            beat = read_beat(_catalog(options))
            assert beat is not None
            assert beat.run == 3 or not beat.has_ended
    oracle.check(options)
    runs = {m.run for m in _manifests(options)}
    assert runs == {1, 2, 3}


def _manifests(options: Options) -> list[Manifest]:
    catalog = _catalog(options)
    return [catalog.manifest(e) for e in catalog.epochs()]


def test_of_two_drivers_one_owns_and_ends_its_epoch_when_asked_to(
    tmp_path: Path,
) -> None:
    # Enough that the owner is still at it when the other, whose Spark may start much
    # later, comes; too little for a compaction, whose files may wait for a reference.
    options = _options(tmp_path, rows=5_500)
    endless = replace(options, available_now=0, pause_ms=400)
    with child(endless) as one, child(endless) as other:
        wait_until(
            lambda: (
                None not in (one.process.poll(), other.process.poll())
                or FENCED in (one.process.poll(), other.process.poll())
            ),
            "the loser",
            DEADLINE_SECONDS,
        )
        owner = one if one.process.poll() is None else other
        owner.wait_for_epochs(2)
        os.kill(owner.pid, signal.SIGTERM)
        codes = {one.end(), other.end()}
        owner.wait_for_orphans()

    assert codes == {0, FENCED}, one.tail() + other.tail()
    # An epoch that was begun and not ended would have left files without a reference.
    assert _unreferenced(options) == set()
    stopped = oracle.check(options, complete=False)
    with child(replace(options, epoch_rows=5_500)) as last:
        assert last.end() == 0, last.tail()
    assert _unreferenced(options) == set()
    assert oracle.check(options).epochs > stopped.epochs
    assert {m.run for m in _manifests(options)} == {1, 2}


class BeatingClock:
    """Time that passes only in sleep, where the heart beats every second."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self.now, self.beats, self.heartbeat = 0.0, 0, heartbeat

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        while self.beats < int(self.now / ownership._BEAT_SECONDS):
            self.beats += 1
            self.heartbeat._write()


def test_claim_of_an_owned_region_is_refused_within_five_seconds(
    store: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(store)
    heartbeat = Heartbeat(catalog, claim(catalog, now_us=1), lambda: None)
    heartbeat._write()
    before = [e.path for e in store.list()]
    clock = BeatingClock(heartbeat)
    monkeypatch.setattr(claims, "time", clock)

    with pytest.raises(FencedError) as caught:
        claim(catalog, now_us=2)

    assert 0 < clock.now < 5
    assert caught.value.owner.startswith("run 1")
    assert [e.path for e in store.list()] == before


def test_claims_made_at_once_have_one_winner(store: LocalStorage) -> None:
    catalog = Catalog(store)
    outcomes: list[object] = []
    barrier = threading.Barrier(8)

    def attempt() -> None:
        barrier.wait()
        try:
            outcomes.append(claim(catalog, now_us=1).run)
        except FencedError:
            outcomes.append(None)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [o for o in outcomes if o is not None] == [1]


def test_claim_goes_past_a_dead_run_whose_process_number_is_in_use_again(
    store: LocalStorage,
) -> None:
    # A driver in a container is often process 1 of the same host, run after run. It
    # died between its claim and its first heartbeat.
    catalog = Catalog(store)
    dead = claim(catalog, now_us=1)
    path = store.root / catalog.paths.run(dead.run)
    path.unlink()
    catalog.claim(msgspec.structs.replace(dead, process="of an earlier boot"))

    assert claim(catalog, now_us=2).run == 2


def _unreferenced(options: Options) -> set[str]:
    catalog = _catalog(options)
    reached = {
        file.path
        for epoch in catalog.epochs()
        for state in catalog.manifest(epoch).operators.values()
        for file in state.files
    }
    return {e.path for e in catalog.storage.list(catalog.paths.state)} - reached
