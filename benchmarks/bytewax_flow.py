"""The same count and sum in bytewax: a process per core, snapshots each second.

Only imported if bytewax is installed. Its processes are started by ``measured``; each
notes how far it has come twice a second.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks.notes import watched

if TYPE_CHECKING:
    from benchmarks.common import Epoch, Window

_KEYS, _NOTES = "RL_BENCH_KEYS", "RL_BENCH_NOTES"
_BATCH = 1_000


class _Part(StatefulSourcePartition[Any, int]):
    """Random records, a thousand at a time; the position is what is snapshotted."""

    def __init__(self, seed: int, position: int | None) -> None:
        self._chance = np.random.default_rng(seed)
        self._keys = int(os.environ[_KEYS])
        self._position = position or 0

    def next_batch(self) -> list[tuple[str, float]]:
        keys = self._chance.integers(0, self._keys, _BATCH).tolist()
        amounts = self._chance.random(_BATCH).tolist()
        self._position += _BATCH
        return list(zip(map(str, keys), amounts, strict=True))

    def snapshot(self) -> int:
        return self._position


class _Numbers(FixedPartitionedSource[Any, int]):
    def list_parts(self) -> list[str]:
        return [str(n) for n in range(os.cpu_count() or 1)]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> _Part:
        return _Part(int(for_part), resume_state)


class _Count(StatelessSinkPartition[Any]):
    def __init__(self, worker: int) -> None:
        self._path = Path(os.environ[_NOTES], str(worker))
        self._seen, self._noted = 0, time.monotonic()

    def write_batch(self, items: list[Any]) -> None:
        self._seen += len(items)
        if time.monotonic() - self._noted > 0.5:
            self._noted = time.monotonic()
            hidden = self._path.with_suffix(".tmp")
            hidden.write_text(str(self._seen))
            hidden.rename(self._path)


class _Counts(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Count:
        return _Count(worker_index)


def _running(
    state: tuple[int, float] | None, amount: float
) -> tuple[tuple[int, float], int]:
    n, total = state or (0, 0.0)
    return (n + 1, total + amount), n + 1


flow = Dataflow("bench")
_records = op.input("numbers", flow, _Numbers())
op.output("out", op.stateful_map("running", _records, _running), _Counts())


def measured(keys: int, window: Window) -> list[Epoch]:
    """Run it on all cores; returns a second each as an epoch."""
    cores = os.cpu_count() or 1
    addresses = ";".join(f"127.0.0.1:{_free_port()}" for _ in range(cores))
    with tempfile.TemporaryDirectory() as place:
        notes, recovery = Path(place, "notes"), Path(place, "recovery")
        notes.mkdir()
        recovery.mkdir()
        settings = {**os.environ, _KEYS: str(keys), _NOTES: str(notes)}
        make = [sys.executable, "-m", "bytewax.recovery", str(recovery), str(cores)]
        subprocess.run(make, check=True)
        command = [sys.executable, "-m", "bytewax.run", "benchmarks.bytewax_flow:flow"]
        command += ["-r", str(recovery), "-s", "1", "-b", "0"]
        command += ["-a", addresses, "-i"]
        workers = [
            subprocess.Popen([*command, str(n)], env=settings) for n in range(cores)
        ]
        try:
            return watched(notes, window, workers)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
