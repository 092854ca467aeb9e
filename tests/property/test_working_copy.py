"""Whatever happens around a working copy, an epoch sees the state of its parent."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.worker.tasks import GROUPS, Tasks

from riverlock.core.times import seconds
from riverlock.program.process import Process
from riverlock.snapshot.format.store_layout import RegionPaths
from riverlock.snapshot.retention.compaction import Compaction, compact
from riverlock.state.copy import layers, tail
from riverlock.state.copy.lmdb import close_all
from riverlock.state.copy.redo import forget_recent
from riverlock.state.spec import Value
from riverlock.storage import LocalStorage

NAMES = "abcdefgh"
FORGET, TIMER = 0, 7


class Sums(Process):
    """Only values: its changes wait in the tail, but for those that set a timer."""

    output = "k string, total long"
    total = Value("long", default=0)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        if record.v == FORGET:
            del self.total
            return
        self.total += record.v
        if record.v == TIMER:
            ctx.set_timer(datetime(2024, 1, 1, tzinfo=UTC) + seconds(self.total))
        yield ctx.key, self.total


rows = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 9)), max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("epoch"), rows),
        st.tuples(st.just("epoch"), rows),
        st.tuples(st.just("undecided"), rows),
        st.tuples(
            st.sampled_from(
                ["other worker", "lose", "damage", "restart", "back", "compact"]
            ),
            st.integers(0, 100),
        ),
        st.tuples(st.just("rescale"), st.integers(1, 5)),
        st.tuples(st.just("move"), st.integers(0, 1)),
    ),
    min_size=2,
    max_size=14,
)


@pytest.fixture(autouse=True)
def small_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make flushes as frequent as everything else."""
    monkeypatch.setattr(tail, "_MAX_ROWS", 7)
    monkeypatch.setattr(tail, "_MAX_FILES", 7)
    monkeypatch.setattr(tail, "_MAX_TAILS", 2)
    monkeypatch.setattr(tail, "_MAX_BYTES", 400)
    monkeypatch.setattr(layers, "_MAX_LAYERS", 2)


@settings(max_examples=60)
@given(steps=steps)
@example(
    # A timeline is given up: one worker remembers it, another finds its files.
    steps=[
        *[("epoch", [("a", 1), ("b", 1)])] * 5,
        ("back", 1),
        *[("other worker", 0), *[("epoch", [("a", 5)])] * 4] * 3,
    ]
)
def test_epochs_see_exactly_the_state_of_their_parent(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        World(Path(place)).play(steps)


class World:
    """The tasks, what their state must be, and moments to go back to."""

    def __init__(self, place: Path) -> None:
        storage = LocalStorage(place / "store")
        self.tasks = Tasks(storage, place / "work", Sums(), Sums.output)
        self.totals: dict[str, Any] = {}
        self.moments: list[tuple[Tasks, dict[str, Any]]] = []
        self.names = itertools.count()
        self.memories: list[dict[Path, tail.Tail]] = [{}, {}]

    def play(self, steps: list[Any]) -> None:
        tail._TAILS.clear()
        for step, value in steps:
            getattr(self, step.replace(" ", "_"))(value)
        self.epoch([(k, 1) for k in NAMES])
        close_all()

    def epoch(self, rows: list[tuple[str, int]]) -> None:
        expected = []
        for key, v in rows:
            if v == FORGET:
                self.totals.pop(key, None)
            else:
                self.totals[key] = self.totals.get(key, 0) + v
                expected.append((key, self.totals[key]))
        assert sorted(self.tasks.run(*rows)) == sorted(expected)
        stored = {k: d["total"] for k, d in self.tasks.truth().items()}
        assert stored == self.totals
        self.moments.append((replace(self.tasks), dict(self.totals)))

    def undecided(self, rows: list[tuple[str, int]]) -> None:
        self.tasks.attempt(rows)

    def other_worker(self, _: int) -> None:
        """The next task runs in a process that may remember an older time."""
        self.memories.append(dict(tail._TAILS))
        tail._TAILS.clear()
        tail._TAILS.update(self.memories.pop(0))
        forget_recent()
        close_all()

    def lose(self, which: int) -> None:
        if file := self._local(which):
            file.unlink()

    def damage(self, which: int) -> None:
        if file := self._local(which):
            raw = bytearray(file.read_bytes())
            raw[which % len(raw)] ^= 1
            file.write_bytes(raw)

    def _local(self, which: int) -> Path | None:
        work = self.tasks.working_dir
        files = sorted(
            p for p in work.rglob("*") if p.is_file() and p.suffix in (".tail", ".redo")
        )
        return files[which % len(files)] if files else None

    def restart(self, _: int) -> None:
        self.tasks = self.tasks.restarted()

    def back(self, which: int) -> None:
        """Go on from an earlier epoch: the later ones never happened."""
        if self.moments:
            tasks, totals = self.moments[which % len(self.moments)]
            token = f"{tasks.token}-{next(self.names)}"
            history = (*tasks.history, (tasks.epoch + 1, token))
            self.tasks = replace(tasks, token=token, history=history)
            self.totals = dict(totals)

    def compact(self, _: int) -> None:
        if len(self.tasks.files) < 2:
            return
        self.tasks.files = compact(
            self.tasks.storage,
            RegionPaths("main"),
            Compaction(operator="op", files=self.tasks.files, drops_tombstones=True),
            now_us=0,
            pieces=[(0, GROUPS)],
            attempt=f"merged-{next(self.names)}",
        )

    def move(self, machine: int) -> None:
        """Go on where copies may be of any time, timeline and range."""
        self.tasks = replace(
            self.tasks, working_dir=self.tasks.working_dir.with_name(f"work-{machine}")
        )

    def rescale(self, parallelism: int) -> None:
        self.tasks = self.tasks.restarted(parallelism=parallelism)
