"""A suite that any source can be run through, including a user's own.

Subclass ``SourceConformance`` in a test module and say how to make the source and how
rows get into it; pytest finds the rest. The suite plays runs, crashes and empty polls
by calling readers in the order in which a run would, or would after a crash. Spark
reads the rows, several ranges in one job; importing this needs neither Spark nor
pytest.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from riverlock.core.clock import ManualClock
from riverlock.core.errors import EpochAbortedError, SourceUnavailableError
from riverlock.core.hidden_columns import SEQ
from riverlock.program.graph import Read
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from riverlock.connectors.base.source import Source
    from riverlock.connectors.base.source_reader import Reader

__all__ = ["SourceConformance", "SourceRun"]

Row = tuple[int, str]
_PATIENCE_SECONDS: Final = 60.0


def _tried(action: Callable[[], Any]) -> Any:
    """Do what may have to be tried again, as a run does while others do not answer."""
    limit = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return action()
        except (EpochAbortedError, SourceUnavailableError):
            if time.monotonic() > limit:
                raise
            time.sleep(0.01)


def _again(offset: Any) -> Any:
    """Return an offset as it would come back from a manifest."""
    return msgspec.json.decode(msgspec.json.encode(offset))


@dataclass
class SourceRun:
    """One run of a flow with one source, as far as the source can tell."""

    source: Source
    spark: SparkSession
    storage: LocalStorage
    clock: ManualClock
    # Ranges that were committed, in order.
    ranges: list[tuple[Any, Any]] = field(default_factory=list)
    reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        """Make a reader, as a run does."""
        from riverlock.engines.jobs.readers import reader_of

        self.reader = reader_of(
            self.spark,
            Read(uid="conformance", source=self.source),
            (self.storage, Catalog(self.storage).paths),
            self.clock,
            takes_all=False,
        )
        if not self.ranges:
            self._first = _again(_tried(self.reader.initial))

    def restarted(self) -> SourceRun:
        """Return the run after this one, which knows what was committed."""
        self.reader.close()
        later = SourceRun(
            source=self.source,
            spark=self.spark,
            storage=self.storage,
            clock=self.clock,
            ranges=list(self.ranges),
        )
        if not self.ranges:
            later._first = self._first
        return later

    @property
    def position(self) -> Any:
        """Where the next range starts."""
        return self.ranges[-1][1] if self.ranges else self._first

    def plan(self, max_rows: int) -> Any:
        """Return where a range of about this many rows would end."""
        here = self.position

        def planned() -> Any:
            return self.reader.advance(here, self.reader.latest(here), max_rows)

        return _again(_tried(planned))

    def commit(self, end: Any) -> None:
        """Let a planned range be the next one."""
        self.ranges.append((self.position, end))
        self.reader.observed(0)

    def has_ended(self) -> bool:
        """Whether the source says that nothing more will come."""
        latest = _tried(lambda: self.reader.latest(self.position))
        return self.reader.has_ended(self.position, latest)

    def read(self, *ranges: tuple[Any, Any]) -> list[list[dict[str, Any]]]:
        """Return the rows of ranges, each in the order of their positions."""
        from pyspark.sql import functions as F

        frames = []
        for number, (start, end) in enumerate(ranges):
            frame = self.reader.read(start, end)
            if not (self.reader.gives_positions and start != end):
                frame = frame.withColumn(SEQ, F.monotonically_increasing_id())
            frames.append(frame.withColumn("__range", F.lit(number)))
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        found: list[list[dict[str, Any]]] = [[] for _ in ranges]
        for row in sorted(whole.collect(), key=lambda r: r[SEQ]):
            found[row["__range"]].append(row.asDict())
        return found


class SourceConformance:
    """What every source must fulfil: ranges are replayable, without gap or overlap.

    Rows of the source under test are distinguished by ``(id, name)``.
    """

    # Must not be found in the source's repr, nor in its offsets.
    secret: str | None = None
    # Whether ``advance`` keeps to a number of rows; files are taken whole.
    limits_rows: bool = True
    # Whether there are sources of this kind that end.
    can_be_bounded: bool = True
    # Of the walk at random.
    steps: int = 12

    def make_source(self, folder: Path, *, bounded: bool) -> Source:
        """Return a source whose place is new and empty; may write below ``folder``.

        Called once per test. The value is used by several runs.
        """
        raise NotImplementedError

    def add_rows(self, source: Source, count: int) -> list[Row]:
        """Add this many more rows to the source; return them.

        May move ``self.clock``, which is the clock of the runs.
        """
        raise NotImplementedError

    def row_of(self, found: dict[str, Any]) -> Row:
        """Return a row that was read as ``add_rows`` has told it."""
        return found["id"], found["name"]

    @contextmanager
    def _start(
        self, folder: Path, *, bounded: bool = False, rows: int = 0
    ) -> Iterator[_Scene]:
        from riverlock.spark.session import local_session

        self.clock = ManualClock(1_700_000_000_000_000)
        source = self.make_source(folder, bounded=bounded)
        added = self.add_rows(source, rows) if rows else []
        run = SourceRun(
            source=source,
            spark=local_session(),
            storage=LocalStorage(folder / "conformance-store"),
            clock=self.clock,
        )
        scene = _Scene(suite=self, source=source, run=run, added=added)
        try:
            yield scene
        finally:
            scene.run.reader.close()

    def test_ranges_join_without_gap_or_overlap(self, tmp_path: Path) -> None:
        """Rows come while ranges are planned; each is in exactly one of them."""
        with self._start(tmp_path) as scene:
            for count in (4, 1, 6):
                scene.add(count)
                scene.take_all(max_rows=3)
            scene.has_read_everything(max_rows=3)

    def test_a_range_can_be_read_again(self, tmp_path: Path) -> None:
        """Later, by another run, when there is more: same rows, same order."""
        with self._start(tmp_path) as scene:
            scene.add(9)
            scene.take_all(max_rows=4)
            before = scene.run.read(*scene.run.ranges)
            scene.add(6)
            scene.restart()
            after = scene.run.read(*scene.run.ranges)
            rows = [[self.row_of(r) for r in found] for found in before]
            assert rows == [[self.row_of(r) for r in found] for found in after]
            positions = [[r[SEQ] for r in found] for found in before]
            assert positions == [[r[SEQ] for r in found] for found in after]
            assert all(sorted(set(p)) == p for p in positions), (
                "positions are not unique"
            )

    def test_empty_polls_stay_where_they_are(self, tmp_path: Path) -> None:
        """Nothing there, or nothing new: no range, no rows, but columns."""
        with self._start(tmp_path) as scene:
            for count in (0, 3):
                scene.add(count)
                scene.take_all(max_rows=100)
                here = scene.run.position
                for _ in range(3):
                    assert scene.run.plan(100) == here, "it moved, and nothing was new"
                assert scene.run.reader.rows_between(here, here) == 0
            frame = scene.run.reader.read(here, here)
            full = scene.run.reader.read(*scene.run.ranges[-1])
            assert set(frame.columns) - {SEQ} == set(full.columns) - {SEQ}
            scene.has_read_everything()

    def test_a_plan_that_was_not_committed_leaves_no_trace(
        self, tmp_path: Path
    ) -> None:
        """A crash between plan and commit: the next run plans anew."""
        with self._start(tmp_path) as scene:
            scene.add(8)
            scene.take(max_rows=3)
            for _ in range(2):
                scene.run.plan(2)
                scene.add(2)
                scene.restart()
            scene.take_all(max_rows=100)
            scene.has_read_everything()

    def test_a_bounded_source_ends(self, tmp_path: Path) -> None:
        """It has ended when all is read, and not before; also for the next run."""
        if not self.can_be_bounded:
            return
        with self._start(tmp_path, bounded=True, rows=7) as scene:
            while not scene.run.has_ended():
                scene.take(max_rows=3)
            scene.has_read_everything()
            scene.restart()
            assert scene.run.has_ended()
            assert scene.run.plan(100) == scene.run.position

    def test_secrets_stay_where_they_are(self, tmp_path: Path) -> None:
        """Neither repr nor offsets show a password."""
        with self._start(tmp_path) as scene:
            scene.add(2)
            scene.take_all(max_rows=1)
            for text in (repr(scene.source), repr(scene.run.ranges)):
                assert self.secret is None or self.secret not in text

    def test_any_order_of_rows_plans_and_crashes(self, tmp_path: Path) -> None:
        """A walk at random through all of the above, the same in every run."""
        with self._start(tmp_path) as scene:
            chance = random.Random(7)  # noqa: S311 - no secret
            for _ in range(self.steps):
                match chance.choice(("add", "add", "take", "take", "drop", "crash")):
                    case "add":
                        scene.add(chance.randrange(6))
                    case "take":
                        scene.take(max_rows=chance.randrange(1, 6))
                    case "drop":
                        scene.run.plan(3)
                    case _:
                        scene.restart()
            scene.take_all(max_rows=4)
            scene.has_read_everything()


@dataclass
class _Scene:
    """A source under test, what was put into it, and the run that reads it."""

    suite: SourceConformance
    source: Source
    run: SourceRun
    added: list[Row] = field(default_factory=list)

    def add(self, count: int) -> None:
        if count:
            self.added += self.suite.add_rows(self.source, count)

    def restart(self) -> None:
        self.run = self.run.restarted()

    def take(self, max_rows: int) -> bool:
        """Commit one range, if there is anything; return whether."""
        end = self.run.plan(max_rows)
        if end == self.run.position:
            return False
        self.run.commit(end)
        return True

    def take_all(self, max_rows: int) -> None:
        """Commit ranges until nothing is left; new rows may take a moment to show."""
        limit = time.monotonic() + _PATIENCE_SECONDS
        while self.take(max_rows) or self._is_behind():
            assert time.monotonic() < limit, "new rows do not show"

    def _is_behind(self) -> bool:
        """Whether ranges say how many rows they have, and rows are missing."""
        count = 0
        for start, end in self.run.ranges:
            rows = self.run.reader.rows_between(start, end)
            if rows is None:
                return False
            count += rows
        time.sleep(0.01)
        return count < len(self.added)

    def has_read_everything(self, max_rows: int | None = None) -> None:
        ranges = self.run.read(*self.run.ranges)
        found = Counter(self.suite.row_of(row) for rows in ranges for row in rows)
        expected = Counter(self.added)
        assert found == expected, (
            f"missing: {sorted(expected - found)}, too many: {sorted(found - expected)}"
        )
        sizes = list(map(len, ranges))
        if max_rows is not None and self.suite.limits_rows:
            assert max(sizes) <= max_rows, f"ranges of at most {max_rows}: {sizes}"
