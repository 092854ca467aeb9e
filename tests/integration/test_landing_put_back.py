"""A channel, its query's bookkeeping and its reader that are not of one moment.

As a backup of a store leaves them that was copied while its flow ran.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.core.errors import SourceError

pytestmark = pytest.mark.spark
CHANNEL = Path("store/channels/lines")


class Lines:
    """A flow of landed lines, and what it has written."""

    def __init__(self, home: Path, spark: SparkSession) -> None:
        self.home, self.spark = home, spark
        (home / "in").mkdir()

    def run(self, *lines: str, uid: str = "lines") -> list[str]:
        for line in lines:
            (self.home / "in" / f"{line}.txt").write_text(f"{line}\n")
        flow = rl.Flow("landed", key_groups=4)
        source = rl.sources.spark_stream(self._build, channel="lines")
        sink = rl.sinks.files(str(self.home / "out"), format="json")
        flow.read(source, uid=uid).select("value").write(sink, uid="out")
        flow.run(str(self.home / "store"), spark=self.spark, available_now=True)
        return self.written()

    def _build(self, session: SparkSession) -> Any:
        return session.readStream.format("text").load(str(self.home / "in"))

    def written(self) -> list[str]:
        files = (self.home / "out").glob("epoch=*/*.json")
        return sorted(
            line.split('"')[3] for f in files for line in f.read_text().splitlines()
        )


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Lines:
    found = Lines(tmp_path, spark)
    assert found.run("a") == ["a"]
    shutil.copytree(tmp_path / CHANNEL, tmp_path / "backup")
    shutil.copytree(tmp_path / "store", tmp_path / "old")
    assert found.run("b") == ["a", "b"]
    return found


@pytest.mark.parametrize("is_gone", [False, True])
def test_bookkeeping_that_is_older_than_the_channel(
    lines: Lines, is_gone: bool
) -> None:
    """Its next step would be taken for one that has landed."""
    landing = lines.home / CHANNEL / "landing"
    shutil.rmtree(landing)
    if not is_gone:
        shutil.copytree(lines.home / "backup/landing", landing)

    with pytest.raises(SourceError, match="segment 1 of channel 'lines' is of step 1"):
        lines.run("c")

    assert lines.written() == ["a", "b"]


def test_a_channel_that_is_older_than_its_reader(lines: Lines) -> None:
    """What lands next would have numbers that were passed."""
    shutil.rmtree(lines.home / CHANNEL)
    shutil.copytree(lines.home / "backup", lines.home / CHANNEL)

    with pytest.raises(SourceError, match="read up to segment 2, and channel 'lines'"):
        lines.run("c")

    assert lines.written() == ["a", "b"]


@pytest.mark.parametrize("parts", [("landing",), ("landing/lines/commits",)])
def test_a_store_that_is_older_than_its_bookkeeping(
    lines: Lines, parts: tuple[str, ...]
) -> None:
    """What Spark takes for landed is not there."""
    kept = lines.home / "kept"
    for part in parts:
        shutil.copytree(lines.home / CHANNEL / part, kept / part)
    shutil.rmtree(lines.home / "store")
    shutil.copytree(lines.home / "old", lines.home / "store")
    shutil.copytree(kept, lines.home / CHANNEL, dirs_exist_ok=True)

    with pytest.raises(SourceError, match="Spark's query has landed step 1"):
        lines.run("c")


def test_a_channel_of_another_source(lines: Lines) -> None:
    """Another query would land everything once more."""
    with pytest.raises(SourceError, match="landed by source 'lines'"):
        lines.run("c", uid="other")

    assert lines.written() == ["a", "b"]


def test_what_belongs_together_goes_on(lines: Lines) -> None:
    assert lines.run("c") == ["a", "b", "c"]
    assert lines.run() == ["a", "b", "c"]
