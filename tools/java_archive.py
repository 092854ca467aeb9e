"""Print Java options that make Spark start twice as fast, after making what they need.

    python tools/java_archive.py .venv/spark.jsa

Tests start and kill dozens of drivers; most of a start is loading and checking classes.
An archive of the loaded classes (Java's class data sharing), made once by a small flow,
spares that. Prints nothing if it cannot be made: everything works without, only slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Processes that live for seconds gain nothing from the second compiler. Plans are young
# garbage: with more room for it, it is collected half as often. With one compiler Java
# has room for 48 MB of compiled code, which a few dozen queries fill: from then on it
# throws away what it has to compile again.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    " -XX:+UseSerialGC -Xmn256m -Xlog:disable"
)

FLOW = """
import tempfile

import riverlock as rl
from pyspark import SparkContext

with tempfile.TemporaryDirectory() as place:
    flow = rl.Flow("warm")
    numbers = flow.read(rl.sources.generator({"k": "id % 7", "v": "id"}, rows=100))
    out = rl.sinks.files(place + "/out", format="parquet")
    numbers.key_by("k").count(uid="count").write(out)
    flow.run(place + "/store", available_now=True)
gateway = SparkContext._gateway
SparkContext._active_spark_context.stop()
gateway.proc.stdin.close()
gateway.proc.wait(120)
"""


def make(archive: Path) -> None:
    """Run the small flow in a virtual machine that leaves an archive behind."""
    unfinished = archive.with_suffix(f".{os.getpid()}")
    options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={unfinished}"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options}
    subprocess.run(
        [sys.executable, "-c", FLOW],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )
    if unfinished.exists():
        unfinished.replace(archive)


def main() -> None:
    """Make the archive unless it is there; print the options."""
    archive = Path(sys.argv[1]).absolute()
    if not archive.exists():
        print("making an archive of Spark's classes", file=sys.stderr)
        make(archive)
    if archive.exists():
        print(f"{SHORT_LIVED} -XX:SharedArchiveFile={archive}")


if __name__ == "__main__":
    main()
