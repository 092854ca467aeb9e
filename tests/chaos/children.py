"""Real processes: started, watched, killed by number, and looked for afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.processes import descendants, start_of, wait_until
from tests.chaos.worker_flow import Options

from riverlock.core import faults

ROOT = Path(__file__).parents[2]
# Generous: the machines of CI are slow, and a deadline is not a measurement.
DEADLINE_SECONDS = 300.0
# A look at all processes of the machine takes a few milliseconds.
_LOOK_SECONDS = 0.2


@dataclass
class Child:
    """A driver in a process of its own.

    ``command`` is a module and its arguments.
    """

    command: tuple[str, ...]
    driver_faults: str = ""
    faults_dir: Path | None = None
    lines: list[str] = field(default_factory=list)
    # By number and start: numbers are used again.
    tree: dict[int, str] = field(default_factory=dict)
    _looked: float = 0.0

    def start(self) -> Child:
        """Start the process; its output is collected beside."""
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith("RIVERLOCK_")
        }
        environment["PYTHONUNBUFFERED"] = "1"
        if self.faults_dir is not None:
            self.faults_dir.mkdir(parents=True, exist_ok=True)
            environment[faults.DIRECTORY_VARIABLE] = str(self.faults_dir)
        if self.driver_faults:
            environment[faults.PLAN_VARIABLE] = self.driver_faults
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self.command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()
        return self

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def epochs(self) -> list[str]:
        """What it has said of committed epochs."""
        return [line for line in self.lines if line.startswith("epoch ")]

    def look(self) -> None:
        """Remember who belongs to it, to find them when it is dead."""
        self._looked = time.monotonic()
        for pid in descendants(self.pid):
            begun = start_of(pid)
            if begun is not None:
                self.tree[pid] = begun

    def _look_at_times(self) -> None:
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self.look()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait while it lives; its last words are shown if it does not."""

        def done() -> bool:
            if condition():
                return True
            self._look_at_times()
            code = self.process.poll()
            assert code is None, f"ended with {code} before {what}: {self.tail()}"
            return False

        try:
            wait_until(done, what, DEADLINE_SECONDS)
        except AssertionError as error:
            message = f"{error}\n{self.tail()}"
            raise AssertionError(message) from None

    def wait_for_epochs(self, count: int) -> None:
        """Wait until it has committed so many epochs."""
        self.wait_for(lambda: len(self.epochs) >= count, f"{count} epochs")

    def wait_for_fault(self, name: str) -> None:
        """Wait until a fault has acted in one of its processes."""
        directory = self.faults_dir
        assert directory is not None
        self.wait_for(lambda: name in faults.fired(directory), f"fault {name}")

    def kill(self) -> None:
        """SIGKILL the driver, and nobody else."""
        self.look()
        self.process.kill()
        self.process.wait()

    def end(self, seconds: float = DEADLINE_SECONDS) -> int:
        """Wait for its end; returns the exit code (negative: the signal)."""

        def ended() -> bool:
            self._look_at_times()
            return self.process.poll() is not None

        wait_until(ended, f"end of {self.lines[-5:]}", seconds)
        return self.process.returncode

    def orphans(self) -> list[int]:
        """Return the processes that outlived the driver."""
        return [pid for pid, begun in self.tree.items() if start_of(pid) == begun]

    def wait_for_orphans(self, seconds: float = DEADLINE_SECONDS) -> None:
        """The JVM and the workers must notice by themselves that the driver died."""
        what = f"orphans {self.tree}"
        wait_until(lambda: not self.orphans(), what, seconds)

    def tail(self) -> str:
        """Return its last words."""
        return "\n".join(self.lines[-30:])

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.look()
        for pid in (self.pid, *self.orphans()):
            with contextlib.suppress(ProcessLookupError):
                if pid == self.pid and self.process.poll() is not None:
                    continue
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(timeout=10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def child(
    options: Options, *, driver_faults: str = "", faults_dir: Path | None = None
) -> Iterator[Child]:
    """Run the worker flow for a while."""
    command = ("tests.chaos.worker_flow", *options.arguments())
    with alive(Child(command, driver_faults, faults_dir)) as started:
        yield started


@contextlib.contextmanager
def alive(child: Child) -> Iterator[Child]:
    """Run a child for a while."""
    try:
        yield child.start()
    finally:
        child.close()
