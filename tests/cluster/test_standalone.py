"""A real Spark cluster: master and two workers, on addresses of their own.

Rows 10 and 15 of the matrix: an executor is killed in mid-run and its tasks move to the
other, which has none of the state; a slow attempt is overtaken by a speculative one.
And the master dies and comes back without memory, which makes Spark wait without end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest
from tests.chaos import oracle
from tests.chaos.children import DEADLINE_SECONDS, child
from tests.chaos.processes import descendants, start_of, wait_until
from tests.chaos.worker_flow import Options

from riverlock.core import faults
from riverlock.snapshot.catalog import Catalog
from riverlock.spark.java import ensure_java
from riverlock.storage.local import LocalStorage

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.chaos,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2 and 127.0.0.3"),
]

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass
class Cluster:
    """A master and its workers, as processes that the test started."""

    root: Path
    url: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        # It takes a free port by itself: one that we found might be taken by then.
        log = self._launch(_MASTER, "127.0.0.1", "--port", "0")
        wait_until(lambda: self._has_url(log), "the master", DEADLINE_SECONDS)
        for host in ("127.0.0.2", "127.0.0.3"):
            self._launch(
                _WORKER,
                host,
                *("--cores", "1", "--memory", "1g"),
                *("--work-dir", str(self.root / host), self.url),
            )

    def _launch(self, what: str, host: str, *arguments: str) -> Path:
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        environment = {
            **os.environ,
            "JAVA_HOME": str(ensure_java()),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            # As fast as drivers start: see tools/java_archive.py.
            "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        }
        log = self.root / f"{what.rpartition('.')[2]}-{host}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [
                    str(launcher),
                    what,
                    *("--host", host, "--webui-port", "0"),
                    *arguments,
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return log

    def _has_url(self, log: Path) -> bool:
        assert self.processes[0].poll() is None, log.read_text()
        found = re.search(r"Starting Spark master at (spark://\S+)\n", log.read_text())
        self.url = found[1] if found else ""
        return found is not None

    def forget(self) -> None:
        """Kill the master; another one comes in its place, and knows nobody."""
        self.processes[0].kill()
        self.processes[0].wait()
        self._launch(_MASTER, "127.0.0.1", "--port", self.url.rpartition(":")[2])
        self.processes[0] = self.processes.pop()

    def executors(self) -> list[int]:
        """Return the executors' process numbers."""
        found = []
        for worker in self.processes[1:]:
            for pid in descendants(worker.pid):
                with contextlib.suppress(OSError):
                    if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found.append(pid)
        return found

    def stop(self) -> None:
        everyone = [p.pid for p in self.processes]
        everyone += [d for p in self.processes for d in descendants(p.pid)]
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        for pid in everyone:
            with contextlib.suppress(ProcessLookupError):
                if start_of(pid) is not None:
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    try:
        started.start()
        yield started
    finally:
        started.stop()


def test_stateful_flow_survives_lost_executors_and_overtaken_attempts(
    cluster: Cluster, tmp_path: Path
) -> None:
    options = Options(
        store=str(tmp_path / "store"),
        out=str(tmp_path / "out"),
        rows=4_000,
        parallelism=4,
        pause_ms=150,
        master=cluster.url,
        working_dir=str(tmp_path / "working"),
        speculation=1,
        # The attempt that has written its change file and then sleeps is overtaken, as
        # soon as the other executor is there, and killed, however long it sleeps.
        worker_faults="P4=sleep:200@12",
    )

    with child(options, faults_dir=tmp_path / "faults") as driver:
        driver.wait_for_epochs(3)
        victim = cluster.executors()[0]
        os.kill(victim, signal.SIGKILL)
        driver.wait_for_epochs(5)
        survivors = set(cluster.executors())
        assert driver.end() == 0, driver.tail()

    assert victim not in survivors
    assert faults.fired(tmp_path / "faults") == ["P4-12"]
    assert _left_by_losers(options), "no attempt was overtaken"
    oracle.check(options)


# A minute long: workers look for a master that is away every five to fifteen seconds.
@pytest.mark.slow
def test_a_master_without_memory_ends_the_run_and_a_new_session_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    options = Options(
        store=str(tmp_path / "store"),
        out=str(tmp_path / "out"),
        rows=8_000,
        pause_ms=4_000,  # 15 epochs are left when the workers find the new master
        master=cluster.url,
        working_dir=str(tmp_path / "working"),
        executor_timeout="5 seconds",
    )

    with child(options) as driver:
        driver.wait_for_epochs(1)
        cluster.forget()
        assert driver.end() == 1, driver.tail()
        told = [line for line in driver.lines if line.startswith("CLUSTER_LOST")]
    again = dataclasses.replace(
        options, pause_ms=0, epoch_rows=8_000, executor_timeout="5 minutes"
    )
    with child(again) as driver:
        assert driver.end() == 0, driver.tail()

    assert len(told) == 1
    assert "has had no executor for 5 seconds" in told[0]
    oracle.check(options)


def _left_by_losers(options: Options) -> set[str]:
    catalog = Catalog(LocalStorage(Path(options.store)))
    newest = catalog.newest()
    assert newest is not None
    reached = {f.path for s in newest.operators.values() for f in s.files}
    return {e.path for e in catalog.storage.list(catalog.paths.state)} - reached
