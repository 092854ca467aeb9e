"""The daemon that forks workers: what they have from it, and what they say."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    # The path of a socket must be short, which that of a test's own folder need not be.
    with tempfile.TemporaryDirectory() as folder:
        yield from _daemon(folder)


def _daemon(folder: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
        "PYTHON_WORKER_FACTORY_SECRET": "none",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    command = [sys.executable, "-m", "riverlock.spark.daemon", "pyspark.worker"]
    with subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        yield process
        process.kill()


def _number(stream: Any) -> int:
    number: int = struct.unpack("!i", stream.read(4))[0]
    return number


def _wait_for_end(pid: int) -> None:
    give_up = time.monotonic() + 250
    while time.monotonic() < give_up:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail(f"worker {pid} is still there")


def _loaded(pid: int) -> str:
    """Return the native libraries of a process, which those of modules are among."""
    maps = Path(f"/proc/{pid}/maps")
    if not maps.exists():
        pytest.skip("this system does not show what a process has loaded")
    return maps.read_text()


def test_worker_begins_with_what_every_task_imports(
    daemon: subprocess.Popen[bytes],
) -> None:
    assert daemon.stdout is not None
    path = daemon.stdout.read(_number(daemon.stdout))
    with socket.socket(socket.AF_UNIX) as session:
        session.connect(path)
        with session.makefile("rb") as answers:
            loaded = _loaded(_number(answers))

    needed = ("lmdb", "msgspec", "pandas", "pyarrow")
    assert [name for name in needed if name not in loaded] == []


def test_worker_whose_session_has_gone_ends_without_a_word(
    daemon: subprocess.Popen[bytes],
) -> None:
    assert daemon.stdout is not None
    path = daemon.stdout.read(_number(daemon.stdout))
    with socket.socket(socket.AF_UNIX) as session:
        session.connect(path)
        with session.makefile("rb") as answers:
            worker = _number(answers)
    _wait_for_end(worker)

    _, errors = daemon.communicate(timeout=250)

    assert errors == b""
