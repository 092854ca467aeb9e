"""Fetch the Kafka broker that tests and examples run, and check every file of it.

    python tools/kafka_jars.py .venv/kafka

The files come from Maven Central, by Ivy, which PySpark brings along: all this needs is
Java. Prints why, and fails, if a file cannot be had or is not the one that is expected.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

LIST = Path(__file__).parents[1] / "requirements" / "kafka.txt"
TIMEOUT_SECONDS = 600
AT_ONCE = 6


class Jar(NamedTuple):
    """A file of Maven Central."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return f"{self.artifact}-{self.version}.jar"


def default_folder() -> Path:
    """Return where the files are: in the environment, unless told otherwise."""
    return Path(os.environ.get("KAFKA_JARS") or Path(sys.prefix, "kafka"))


def jars() -> list[Jar]:
    """Return the files that make a broker."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    pairs = [line.split() for line in lines if line and not line.startswith("#")]
    return [_jar(name, sha256) for name, sha256 in pairs]


def _jar(name: str, sha256: str) -> Jar:
    group, artifact, version = name.split(":")
    return Jar(group, artifact, version, sha256)


def missing(folder: Path) -> list[str]:
    """Return the files that are not there, or not as expected."""
    return [jar.name for jar in jars() if _sha256(folder / jar.name) != jar.sha256]


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _module(part: list[Jar]) -> str:
    """Return what Ivy is to fetch; nothing is taken along that is not on the list."""
    wanted = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)}"
        f' rev={quoteattr(jar.version)} transitive="false" conf="all-&gt;master"/>'
        for jar in part
    )
    return (
        '<ivy-module version="2.0"><info organisation="riverlock" module="kafka"/>'
        '<configurations><conf name="all"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _java() -> str:
    from riverlock.spark.java import find_java

    found = find_java()
    if found is None:
        sys.exit("no Java 17 or newer found")
    return str(found.executable)


def _ivy() -> Path:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    (found,) = Path(spark.origin).parent.glob("jars/ivy-*.jar")
    return found


def _fetch(part: list[Jar], place: Path, made: Path) -> str:
    """Fetch some files; returns what Ivy said."""
    place.mkdir()
    module = place / "ivy.xml"
    module.write_text(_module(part), encoding="utf-8")
    command = [_java(), "-jar", str(_ivy()), "-ivy", str(module)]
    command += ["-cache", str(place / "cache")]
    command += ["-retrieve", f"{made}/[artifact]-[revision].[ext]"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    return (done.stdout + done.stderr)[-2000:]


def fetch(folder: Path) -> None:
    """Fetch everything, check it, and only then name the folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        root, made, wanted = Path(place), Path(place, "jars"), jars()
        # Ivy fetches one file after the other; most of the time it waits.
        with ThreadPoolExecutor(AT_ONCE) as pool:
            said = pool.map(
                lambda n: _fetch(wanted[n::AT_ONCE], root / str(n), made),
                range(AT_ONCE),
            )
            words = list(said)
        wrong = missing(made)
        if wrong:
            print(*words, sep="\n", file=sys.stderr)
            sys.exit(f"could not fetch, or not as expected: {', '.join(wrong)}")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def main() -> None:
    """Fetch unless everything is there."""
    folder = Path(sys.argv[1]).absolute()
    if missing(folder):
        print("fetching a Kafka broker for tests and examples", file=sys.stderr)
        fetch(folder)


if __name__ == "__main__":
    main()
