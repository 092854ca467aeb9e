"""A third of a child's start is the JVM loading the same classes as the last one.

Java can keep them in an archive (class data sharing). It is made once per machine, by a
run of the flow, and is used by every child after that; without it all works as well.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pyspark
from tests.chaos.processes import descendants, is_running, wait_until

from riverlock.spark.java import ensure_java

VARIABLE = "CHAOS_JAVA_OPTIONS"
_ROOT = Path(__file__).parents[2]


@cache
def java_options() -> str:
    """Return the options that make children start fast; makes the archive if needed."""
    named = f"{pyspark.__version__} {ensure_java().resolve()}"
    name = hashlib.blake2b(named.encode(), digest_size=8).hexdigest()
    folder = Path(tempfile.gettempdir(), f"riverlock-chaos-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    archive = folder / f"{name}.jsa"
    if folder.stat().st_uid != os.getuid():
        return ""
    if not archive.exists():
        _make(archive)
    # An empty one says that this Java cannot make archives.
    if archive.stat().st_size == 0:
        return ""
    return f"-Xshare:auto -XX:SharedArchiveFile={archive}"


def _make(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as root:
        made = Path(root, "made.jsa")
        places = ["--store", f"{root}/store", "--out", f"{root}/out"]
        running = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.worker_flow", *places, "--rows", "900"],
            cwd=_ROOT,
            env={**os.environ, VARIABLE: f"-XX:ArchiveClassesAtExit={made}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        tree: set[int] = set()
        while running.poll() is None:
            tree |= set(descendants(running.pid))
            time.sleep(0.2)
        # Java writes while it ends, which is after Python has.
        wait_until(lambda: not any(map(is_running, tree)), "the archive", 120)
        data = made.read_bytes() if made.exists() else b""
        temporary = archive.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(archive)
