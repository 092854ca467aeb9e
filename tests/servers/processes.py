"""A server that a test starts, stops, kills and starts again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_START_SECONDS = 120


def unprivileged() -> dict[str, Any]:
    """Return how to start a process of a server that refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("the server does not run as root, and there is no user 'nobody'")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


class Server:
    """One process with a data folder of its own; ended by its id."""

    def __init__(self, name: str) -> None:
        # Not below pytest's folders, which other users may not enter.
        self.folder = Path(tempfile.mkdtemp(prefix=f"riverlock-{name}-"))
        self.as_user = unprivileged()
        if self.as_user:
            os.chown(self.folder, self.as_user["user"], self.as_user["group"])
        self._is_prepared = False
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the data folder; before the first start."""
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start(self) -> None:
        """Start it and wait until it answers."""
        if not self._is_prepared:
            self.prepare()
            self._is_prepared = True
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=self.environment(),
                start_new_session=True,
                **self.as_user,
            )
        self._wait(self.answers)

    def _wait(self, condition: Callable[[], bool]) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                log = (self.folder / "log.txt").read_text(errors="replace")[-3000:]
                self.stop()
                message = f"the server did not start:\n{log}"
                raise RuntimeError(message)
            time.sleep(0.05)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End it, by default with a chance to say good-bye."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """End it for good."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)
