"""A source that a user could have written, through the suite that is shipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.conformance.test_sources import OnSpark, Row

import riverlock as rl
from riverlock.core.errors import InvalidFlowError

# Lines of a partition; small, so that ranges have several.
PART = 2


@dataclass(frozen=True)
class Journal:
    """A text file to which lines are appended: a source of a user's own."""

    file: Path
    bounded: bool = False
    kind: str = "journal"
    schema: str = "id bigint, name string"

    @property
    def place(self) -> str:
        return str(self.file)

    def reader(self, uid: str) -> JournalReader:
        return JournalReader(self, uid)


@dataclass(frozen=True)
class JournalPart:
    """Some lines, which a task reads."""

    file: str
    first: int
    last: int

    def rows(self) -> Iterator[tuple[int, str]]:
        with open(self.file, "rb") as file:  # noqa: PTH123 - as in a user's code
            for number, line in enumerate(file):
                if self.first <= number < self.last:
                    identity, name = line.decode().rstrip("\n").split("\t")
                    yield int(identity), name


class JournalReader:
    """Offsets are numbers of lines; a line that is not whole yet is not there."""

    def __init__(self, source: Journal, uid: str) -> None:
        self._source, self._uid = source, uid
        self._lines = 0
        if source.bounded:
            self._lines = self.latest(0)

    def initial(self) -> int:
        return 0

    def latest(self, start: int) -> int:
        if not self._source.file.exists():
            raise rl.errors.SourceUnavailableError(self._uid, what="there is no file")
        return max(start, self._source.file.read_bytes().count(b"\n"))

    def advance(self, start: int, latest: int, max_rows: int) -> int:
        return min(latest, start + max_rows)

    def has_ended(self, start: int, latest: int) -> bool:
        return self._source.bounded and start >= latest

    def rows_between(self, start: int, end: int) -> int:
        return end - start

    def partitions(self, start: int, end: int) -> Sequence[JournalPart]:
        firsts = range(start, end, PART)
        file = str(self._source.file)
        return [JournalPart(file, first, min(first + PART, end)) for first in firsts]

    def close(self) -> None:
        pass


class TestJournal(OnSpark):
    def make_source(self, folder: Path, *, bounded: bool) -> Journal:
        file = folder / "journal.txt"
        file.touch()
        return Journal(file, bounded)

    def add_rows(self, source: object, count: int) -> list[Row]:
        assert isinstance(source, Journal)
        rows = self.new_rows(count)
        with source.file.open("a") as file:
            file.writelines(f"{number}\t{name}\n" for number, name in rows)
        return rows


def test_it_is_what_the_protocol_asks_for(tmp_path: Path) -> None:
    source: rl.sources.ReplayableSource = Journal(tmp_path / "in.txt")
    reader: rl.sources.SourceReader = source.reader("in")
    part: rl.sources.SourcePartition = JournalPart("in.txt", 0, 1)

    assert isinstance(source, rl.sources.ReplayableSource)
    assert reader.partitions(0, 1)
    assert part.rows()


def flow_of(file: Path, out: rl.sinks.MemorySink) -> rl.Flow:
    flow = rl.Flow("journal")
    lines = flow.read(Journal(file), uid="lines")
    lines.key_by("name").running_count(uid="n").write(out, uid="out")
    return flow


def test_a_flow_reads_it_without_spark_and_goes_on(tmp_path: Path) -> None:
    file, out = tmp_path / "journal.txt", rl.sinks.memory()
    store = str(tmp_path / "store")
    file.write_text("1\ta\n2\tb\n3\ta\nhalf a line")

    flow_of(file, out).run(store, execution="local", available_now=True)
    file.write_text("1\ta\n2\tb\n3\ta\n4\ta\n")
    flow_of(file, out).run(store, execution="local", available_now=True)

    assert sorted(out.rows()) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


@pytest.mark.spark
def test_a_flow_reads_it_on_spark_in_the_order_of_its_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    file, out = tmp_path / "journal.txt", rl.sinks.memory()
    file.write_text("".join(f"{n}\t{'ab'[n % 2]}\n" for n in range(9)))

    flow_of(file, out).run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert out.rows() == [
        *(("a", n + 1) for n in range(5)),
        *(("b", n + 1) for n in range(4)),
    ]


def test_columns_are_known_when_the_flow_is_built(tmp_path: Path) -> None:
    stream = rl.Flow("journal").read(Journal(tmp_path / "in.txt"))

    with pytest.raises(InvalidFlowError, match="id, name"):
        stream.key_by("nam")
