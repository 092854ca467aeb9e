"""The flow in a process of its own, which can be killed, and is started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from riverlock.core.errors import RiverlockError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.format.records import Manifest
from riverlock.storage.open import open_storage

# Each virtual machine lives for seconds: compiling for the long run does not pay.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PATIENCE_SECONDS = 600.0
_LOOK_SECONDS = 0.1
# A pace that the machine cannot keep is never caught up with.
_SETTLING_SECONDS = 30.0


@dataclass
class Ledger:
    """A store, an output, and the process that works on them.

    Attributes:
        root: Where both are.
        engine: ``jobs``: on Spark; ``local``: in one thread.
        pace: Transfers per second.
        began: When the first transfer appeared, in seconds since 1970.
        killed: When the process was killed, in microseconds since 1970.
    """

    root: Path
    engine: str
    pace: float
    began: float = field(default_factory=time.time)
    killed: list[int] = field(default_factory=list)
    _child: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> str:
        return str(self.root / "store")

    @property
    def out(self) -> str:
        return str(self.root / "out")

    def start(self) -> None:
        """Start the flow, and wait until it has decided an epoch."""
        before = self.decided()
        self._child = self._spawn()
        self._wait(lambda: self.decided() > before, "decided an epoch")

    def settle(self) -> None:
        """Wait until the flow has taken what appeared while it was away."""
        deadline = time.monotonic() + _SETTLING_SECONDS
        while time.monotonic() < deadline:
            there = (time.time() - self.began) * self.pace
            if there - self.manifests()[-1].inputs["transfers"].end < 2 * self.pace:
                return
            time.sleep(_LOOK_SECONDS)

    def _spawn(self, *more: str) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-m", "examples.ledger.flow"),
            *("--store", self.store, "--out", self.out, "--engine", self.engine),
            *("--began", str(self.began), "--pace", str(self.pace), *more),
        ]
        with (self.root / "flow.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env={**os.environ, "JAVA_TOOL_OPTIONS": JAVA_OPTIONS},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the process, its virtual machine and its workers, wherever they are."""
        assert self._child is not None
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self.killed.append(time.time_ns() // 1000)

    def close(self) -> None:
        """Leave nothing running."""
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def finish(self) -> int:
        """Stop the flow, let all money arrive, and return how many transfers it was."""
        assert self._child is not None
        self._child.communicate(timeout=PATIENCE_SECONDS)
        newest = self.manifests()[-1]
        count = int(newest.inputs["transfers"].end)
        last = self._spawn("--limit", str(count))
        last.communicate(timeout=PATIENCE_SECONDS)
        if self._child.returncode or last.returncode:
            raise SystemExit(f"the flow failed; the end of its log:\n{self._log()}")
        return count

    def requests(self) -> int:
        """Return how many snapshots were asked for so far."""
        return CutLog(open_storage(self.store)).last()

    def manifests(self) -> list[Manifest]:
        """Return the retained epochs of the region that reads the transfers."""
        catalog = Catalog(open_storage(self.store))
        found = []
        for epoch in catalog.epochs():
            with suppress(RiverlockError):  # retention works meanwhile
                found.append(catalog.manifest(epoch))
        return found

    def rows_between(self, since: float, until: float) -> float:
        """Return the transfers per second of the epochs decided in a span of time."""
        rows = sum(
            m.inputs["transfers"].rows or 0
            for m in self.manifests()
            if since <= m.decided_us / 1e6 < until
        )
        return rows / (until - since)

    def decided_us(self, region: str, epoch: int) -> int:
        """Return when a region decided an epoch."""
        catalog = Catalog(open_storage(self.store), region)
        return catalog.stored(epoch).decided_us

    def wait_for_epoch(self, epoch: int) -> None:
        """Wait until the region that reads the transfers has decided an epoch."""
        self._wait(lambda: self.decided() >= epoch, f"decided epoch {epoch}")

    def decided(self) -> int:
        """Return the newest epoch of that region; -1: there is none."""
        with suppress(RiverlockError):
            return max(Catalog(open_storage(self.store)).epochs(), default=-1)
        return -1

    def _wait(self, is_over: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_over():
            assert self._child is not None
            if self._child.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the flow has not {what}; its log:\n{self._log()}")
            time.sleep(_LOOK_SECONDS)

    def _log(self) -> str:
        return (self.root / "flow.log").read_text(errors="replace")[-3_000:]
