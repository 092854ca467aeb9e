"""The continuous engine without Spark: its tasks are processes of this machine.

Or threads of this process, which begin sooner: the sockets are the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from pyspark import cloudpickle

from riverlock.connectors.base.source_reader import Reader
from riverlock.driver import runner
from riverlock.driver.run_options import RunOptions, chosen
from riverlock.engines.continuous.engine import ContinuousEngine
from riverlock.engines.continuous.task import run_task
from riverlock.engines.local.analysis import LocalAnalysis
from riverlock.engines.local.engine import LocalEngine
from riverlock.engines.tables.initial_state import initial_rows
from riverlock.engines.tables.rows import ArrowRows
from riverlock.flow.inside import program_of
from riverlock.program.graph import Read
from riverlock.program.program import Program
from riverlock.stages.compiled import CompiledFlow, KeyedStage
from riverlock.storage.base import Storage

__all__ = ["Processes", "Threads", "run_continuously"]

_TASK = """
import json, sys
given = json.loads(sys.stdin.readline())
sys.path[:] = given["path"]
from riverlock.engines.continuous.task import run_task
run_task(bytes.fromhex(given["invitation"]), given["task"])
"""


class _Analysis(LocalAnalysis):
    evaluates_once = True

    def shipped(self, program: Any) -> Any:
        return cloudpickle.dumps(program)  # type: ignore[no-untyped-call]


class Running:
    """The processes of one generation."""

    def __init__(self, invitation: bytes, tasks: int) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", _TASK], stdin=subprocess.PIPE, text=True
            )
            for _ in range(tasks)
        ]
        for task, process in enumerate(self.processes):
            given = {"invitation": invitation.hex(), "task": task, "path": sys.path}
            assert process.stdin is not None
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.close()

    def failure(self) -> str | None:
        codes = [p.poll() for p in self.processes]
        if not any(codes):
            return None
        return f"processes ended with {codes}"

    def stop(self) -> None:
        for process in self.processes:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Processes:
    """Starts a process for each task; keeps all of them to look at."""

    address: str | None = None

    def __init__(self) -> None:
        self.generations: list[Running] = []

    def refusal(self, tasks: int) -> None:
        return None

    def start(self, invitation: bytes, tasks: int) -> Running:
        self.generations.append(Running(invitation, tasks))
        return self.generations[-1]


class RunningThreads:
    """The threads of one generation."""

    def __init__(self, invitation: bytes, tasks: int) -> None:
        self._threads = [
            threading.Thread(
                target=run_task, args=(invitation, n), name=f"riverlock-task-{n}"
            )
            for n in range(tasks)
        ]
        for thread in self._threads:
            thread.start()

    def failure(self) -> str | None:
        return None

    def stop(self) -> None:
        for thread in self._threads:
            thread.join()


class Threads:
    """Starts a thread for each task."""

    address: str | None = None

    def refusal(self, tasks: int) -> None:
        return None

    def start(self, invitation: bytes, tasks: int) -> RunningThreads:
        return RunningThreads(invitation, tasks)


class LocalGround:
    """The local engine's sources, steps and sinks; tasks in threads or processes."""

    def __init__(self, options: RunOptions, hosts: Any) -> None:
        self.engine = LocalEngine(options)
        self._hosts = hosts

    def reader(self, node: Read, storage: Storage) -> Reader:
        return self.engine.reader(node, storage)

    def analysis(self, flow: Program, readers: Mapping[str, Reader]) -> Any:
        return _Analysis(flow, readers)

    def computed(self, compiled: CompiledFlow) -> None:
        return None

    def initial(self, stage: KeyedStage) -> ArrowRows:
        return initial_rows(stage.node)

    def hosts(self) -> Any:
        return self._hosts


def run_continuously(flow: Any, store: str, *, hosts: Any, **options: Any) -> Any:
    """Run a flow as ``flow.run`` does, on this engine."""
    wanted = chosen(options)  # type: ignore[arg-type]
    engine = ContinuousEngine(LocalGround(wanted, hosts))
    return runner.run(program_of(flow), store, engine, wanted)
