"""Print ``yes`` if this machine has the Java that Spark needs, else ``no``.

Used by the Makefile before anything is installed, hence standard library only. The
same rule as ``riverlock.spark.java``: JAVA_HOME first, then ``java`` on PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

MINIMUM: Final = 17


def candidates() -> list[str]:
    """List the java programs that Spark would take, best first."""
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(str(Path(home, "bin", "java")))
    if on_path := shutil.which("java"):
        found.append(on_path)
    return found


def major_version(java: str) -> int | None:
    """Ask a java program for its version; None if it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None


def main() -> None:
    """Print the answer."""
    versions = [major_version(java) for java in candidates()]
    good = any(version is not None and version >= MINIMUM for version in versions)
    print("yes" if good else "no")


if __name__ == "__main__":
    main()
