"""A suite that any sink can be run through, including a user's own.

Subclass ``SinkConformance`` in a test module and say how to make the sink and how to
read what it shows; pytest finds the rest. The suite plays tasks, driver, crashes and
zombies by calling stager and committer in the order in which a run would, or would
after a crash. It needs neither Spark nor, to import, pytest.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import RiverlockError
from riverlock.snapshot.past import Past, commit_of
from riverlock.storage.local import LocalStorage
from riverlock.testing.sink_run import Row, SinkRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from riverlock.connectors.base.sink import Sink
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.snapshot.past import Claim, Commit
    from riverlock.storage.base import Storage

__all__ = ["SinkConformance"]


def _rows(epoch: int, *, count: int = 4, task: int = 0) -> list[Row]:
    """Return rows that no other epoch or task has."""
    first = epoch * 1000 + task * 100
    return [(first + i, f"é'\\\"{epoch},\n{i}", epoch) for i in range(count)]


class SinkConformance:
    """What every sink with the guarantee "exactly once" must fulfil.

    A sink gets rows of ``id bigint, name string, epoch int``; no ``id`` comes twice in
    one test, so that sinks that append and sinks that replace by ``id`` show the same.
    """

    # Must not be found in the sink's repr, its tokens, or the store.
    secret: str | None = None
    # Of the walk through all cases at random.
    steps: int = 40

    def make_sink(self, folder: Path) -> Sink:
        """Return a sink whose place is new and empty; may write below ``folder``.

        Called once per test. The value is used by several runs.
        """
        raise NotImplementedError

    def read_rows(self, sink: Sink) -> Iterable[Row]:
        """Return what a reader of the sink sees now, as ``(id, name, epoch)``.

        Called while nothing was written yet, and from another thread during commits.
        """
        raise NotImplementedError

    def leftovers(self, sink: Sink) -> Iterable[str]:
        """Return the names of what is staged in the sink's own place, if anything.

        Files below the store's ``staged/`` are removed by the store's cleaner.
        """
        return ()

    @contextmanager
    def _start(self, folder: Path) -> Iterator[_Scene]:
        yield _Scene(
            suite=self,
            sink=self.make_sink(folder),
            storage=LocalStorage(folder / "conformance-store"),
            flow=uuid.uuid4().hex,
        )

    def test_staged_rows_are_invisible_until_the_commit(self, tmp_path: Path) -> None:
        """Readers see an epoch when it is committed, whole, and not before."""
        with self._start(tmp_path) as scene:
            run = scene.run(1)
            output = run.stage(0, _rows(0), _rows(0, task=1))
            scene.shows()
            run.commit(0, output)
            scene.shows(*_rows(0), *_rows(0, task=1))

    def test_a_commit_can_be_repeated(self, tmp_path: Path) -> None:
        """Its answer may be lost: this run, and the next, commit again."""
        with self._start(tmp_path) as scene:
            run = scene.run(1)
            first = run.stage(0, _rows(0))
            run.commit(0, first)
            second = run.stage(1, _rows(1))
            for _ in range(3):
                run.commit(1, second)
            for number in (2, 3):
                scene.run(number).commit(1, second)
            scene.shows(*_rows(0), *_rows(1))
            scene.has_no_leftovers()

    def test_a_crash_between_stage_and_commit_is_completed(
        self, tmp_path: Path
    ) -> None:
        """The next run commits what the manifest names, from nothing but that."""
        with self._start(tmp_path) as scene:
            output = scene.run(1).stage(0, _rows(0), _rows(0, task=1))
            scene.run(2).commit(0, output)
            scene.shows(*_rows(0), *_rows(0, task=1))
            scene.has_no_leftovers()

    def test_attempts_that_nobody_voted_for_stay_invisible(
        self, tmp_path: Path
    ) -> None:
        """Failed, speculative and aborted attempts leave nothing for ever."""
        with self._start(tmp_path) as scene:
            run = scene.run(1)
            run.stage(0, _rows(0))  # a retry
            output = run.stage(0, _rows(0))
            run.stage(0, _rows(0, count=2))  # a speculative copy that died
            run.commit(0, output)
            scene.shows(*_rows(0))
            run.stage(1, _rows(1))  # an epoch that was aborted, by a run that died
            again = scene.run(2)
            again.commit(0, output)
            redone = again.stage(1, _rows(1))
            again.commit(1, redone)
            scene.shows(*_rows(0), *_rows(1))
            scene.has_no_leftovers()

    def test_a_late_attempt_of_a_committed_epoch_changes_nothing(
        self, tmp_path: Path
    ) -> None:
        """A zombie task stages when all is over; the next commit clears it away."""
        with self._start(tmp_path) as scene:
            run = scene.run(1)
            output = run.stage(0, _rows(0))
            run.commit(0, output)
            run.stage(0, _rows(0))
            scene.shows(*_rows(0))
            run.commit(1, run.stage(1, _rows(1)))
            scene.shows(*_rows(0), *_rows(1))
            scene.has_no_leftovers()

    def test_a_zombie_changes_nothing(self, tmp_path: Path) -> None:
        """A run that slept through a takeover commits what it had decided."""
        with self._start(tmp_path) as scene:
            zombie = scene.run(1)
            output = zombie.stage(0, _rows(0))
            owner = scene.run(2)
            scene.tries(lambda: zombie.commit(0, output))
            owner.commit(0, output)
            following = owner.stage(1, _rows(1))
            scene.tries(lambda: zombie.commit(0, output))
            owner.commit(1, following)
            scene.tries(lambda: zombie.commit(0, output))
            scene.tries(lambda: zombie.commit(1, following))
            owner.commit(2, owner.stage(2, _rows(2)))
            scene.shows(*_rows(0), *_rows(1), *_rows(2))
            scene.has_no_leftovers()

    def test_runs_continue_where_others_ended(self, tmp_path: Path) -> None:
        """Each run opens the sink anew and commits the newest epoch once more."""
        with self._start(tmp_path) as scene:
            expected: list[Row] = []
            newest = None
            for epoch in range(4):
                run = scene.run(epoch + 1)
                if newest is not None:
                    run.commit(epoch - 1, newest)
                newest = run.stage(epoch, _rows(epoch))
                run.commit(epoch, newest)
                expected += _rows(epoch)
            scene.shows(*expected)

    def test_empty_epochs_change_nothing(self, tmp_path: Path) -> None:
        """Most epochs of a quiet stream have no rows; numbers may be missing."""
        with self._start(tmp_path) as scene:
            run = scene.run(1)
            run.commit(0, run.stage(0))
            scene.shows()
            run.commit(1, run.stage(1, _rows(1), []))
            for epoch in (2, 3):
                run.commit(epoch, run.stage(epoch))
            later = scene.run(2)
            later.commit(3, later.stage(3))
            later.commit(4, later.stage(4, [], _rows(4)))
            scene.shows(*_rows(1), *_rows(4))

    def test_readers_never_see_part_of_an_epoch(self, tmp_path: Path) -> None:
        """A reader polls while epochs of several tasks are committed."""
        with self._start(tmp_path) as scene:
            run, tasks, epochs, count = scene.run(1), 3, 6, 50
            outputs = [
                run.stage(n, *(_rows(n, task=t, count=count) for t in range(tasks)))
                for n in range(epochs)
            ]
            with scene.polling() as seen:
                for epoch, output in enumerate(outputs):
                    run.commit(epoch, output)
            assert seen, "the reader never got to read"
            for shown in seen:
                assert set(shown.values()) <= {tasks * count}, f"part: {shown}"
                assert sorted(shown) == list(range(len(shown))), f"a gap: {shown}"

    def test_a_store_put_back_is_not_taken_for_the_one_that_wrote(
        self, tmp_path: Path
    ) -> None:
        """It decides numbers again that the sink has: taken back, or refused."""
        with self._start(tmp_path) as scene:
            kept = scene.written_by_a_store_that_was_lost()

            def go_on() -> None:
                run = scene.run(2, past=kept)
                run.commit(0, kept.decided[0])
                run.commit(1, run.stage(1, _rows(1, task=3)))

            if scene.tries(go_on):
                scene.shows(*_rows(0), *_rows(1, task=3))
            else:
                scene.shows(*_rows(0), *_rows(1), *_rows(2))

    def test_a_store_put_back_whose_next_rows_come_later(self, tmp_path: Path) -> None:
        """Its epochs of the same numbers have no rows, so that no number meets."""
        with self._start(tmp_path) as scene:
            kept = scene.written_by_a_store_that_was_lost()

            def go_on() -> None:
                run = scene.run(2, past=kept)
                run.commit(0, kept.decided[0])
                for epoch in (1, 2):
                    run.commit(epoch, run.stage(epoch))
                run.commit(3, run.stage(3, _rows(1, task=3)))

            if scene.tries(go_on):
                scene.shows(*_rows(0), *_rows(1, task=3))
            else:
                scene.shows(*_rows(0), *_rows(1), *_rows(2))

    def test_a_run_whose_sink_a_copy_of_the_store_took_stops(
        self, tmp_path: Path
    ) -> None:
        """Two copies of a store run with the same numbers: one of them writes."""
        with self._start(tmp_path) as scene:
            first = scene.run(1)
            known = _Known({0: first.stage(0, _rows(0))}, {1: first.token})
            first.commit(0, known.decided[0])
            ours = scene.run(2, past=known)
            ours.commit(0, known.decided[0])
            theirs = scene.run(2, past=known)
            theirs.commit(0, known.decided[0])
            theirs.commit(1, theirs.stage(1, _rows(1, task=3)))
            for epoch in (1, 2):
                output = ours.stage(epoch, _rows(epoch))
                done = scene.tries(lambda e=epoch, o=output: ours.commit(e, o))
                assert not done, "both write"
                scene.shows(*_rows(0), *_rows(1, task=3))
            theirs.commit(2, theirs.stage(2, _rows(2, task=3)))
            scene.shows(*_rows(0), *_rows(1, task=3), *_rows(2, task=3))

    def test_a_sink_put_back_from_a_backup_of_its_own_is_told(
        self, tmp_path: Path
    ) -> None:
        """It lacks epochs that it had: rows would be missing without a word."""
        with self._start(tmp_path) as scene:
            run = scene.run(1)
            known = _Known({0: run.stage(0, _rows(0))}, {1: run.token})
            run.commit(0, known.decided[0])
            # The sink is as a backup of this moment would leave it.
            for epoch in (1, 2):
                known.decided[epoch] = run.stage(epoch, _rows(epoch))
            told = not scene.tries(lambda: scene.run(2, past=known))
            assert told, "a start does not see that epoch 1 is missing"
            scene.shows(*_rows(0))

    def test_a_sink_that_lost_all_it_had_is_told(self, tmp_path: Path) -> None:
        """As it was before its first epoch."""
        with self._start(tmp_path) as scene:
            run = scene.run(1)
            known = _Known({}, {1: run.token})
            for epoch in (0, 1):
                known.decided[epoch] = run.stage(epoch, _rows(epoch))
            told = not scene.tries(lambda: scene.run(2, past=known))
            assert told, "a start does not see that epoch 0 is missing"
            scene.shows()

    def test_secrets_stay_where_they_are(self, tmp_path: Path) -> None:
        """Neither repr, nor tokens, nor the store show a password."""
        with self._start(tmp_path) as scene:
            run = scene.run(1)
            output = run.stage(0, _rows(0))
            run.commit(0, output)
            texts = [repr(scene.sink), repr(run), str(output), run.guarantee]
            stored = [p for p in tmp_path.rglob("*") if p.is_file()]
            if self.secret is not None:
                assert not [t for t in texts if self.secret in t]
                secret = self.secret.encode()
                assert not [p for p in stored if secret in p.read_bytes()]

    def test_any_order_of_crashes_and_repetitions(self, tmp_path: Path) -> None:
        """A walk at random through all of the above, the same in every run."""
        with self._start(tmp_path) as scene:
            _Walk(scene, random.Random(7)).go(self.steps)  # noqa: S311 - no secret
            scene.has_no_leftovers()


@dataclass
class _Scene:
    """A sink under test, its store, and what readers see."""

    suite: SinkConformance
    sink: Sink
    storage: Storage
    flow: str

    def run(self, number: int, past: Past | None = None) -> SinkRun:
        return SinkRun(
            sink=self.sink,
            storage=self.storage,
            run=number,
            flow=self.flow,
            past=past or Past(),
        )

    def written_by_a_store_that_was_lost(self) -> _Known:
        """Write three epochs; return what a backup knows, made after the first."""
        run = self.run(1)
        known = _Known({0: run.stage(0, _rows(0))}, {1: run.token})
        run.commit(0, known.decided[0])
        for epoch in (1, 2):
            run.commit(epoch, run.stage(epoch, _rows(epoch)))
        return known

    def shows(self, *rows: Row) -> None:
        found = Counter(tuple(r) for r in self.suite.read_rows(self.sink))
        expected = Counter(rows)
        assert found == expected, (
            f"missing: {sorted(expected - found)}, too many: {sorted(found - expected)}"
        )

    def has_no_leftovers(self) -> None:
        left = list(self.suite.leftovers(self.sink))
        assert left == [], f"left behind: {left}"

    @staticmethod
    def tries(action: Any) -> bool:
        """Do what may be refused, but only in words that are ours; tell if not."""
        try:
            action()
        except RiverlockError:
            return False
        return True

    @contextmanager
    def polling(self) -> Iterator[list[Counter[int]]]:
        """Read in another thread, as often as it goes, for as long as the block."""
        seen: list[Counter[int]] = []
        troubles: list[BaseException] = []
        done = threading.Event()

        def poll() -> None:
            try:
                while not done.is_set():
                    rows = self.suite.read_rows(self.sink)
                    seen.append(Counter(epoch for _, _, epoch in rows))
            except BaseException as error:  # noqa: BLE001 - raised below
                troubles.append(error)

        thread = threading.Thread(target=poll, name="riverlock-poller")
        thread.start()
        try:
            yield seen
        finally:
            done.set()
            thread.join()
        if troubles:
            raise troubles[0]


@dataclass
class _Known(Past):
    """What a store knows that has decided some epochs."""

    decided: dict[int, SinkOutput]
    runs: dict[int, str]

    def has_run(self, claim: Claim) -> bool:
        return self.runs.get(claim.run) == claim.token

    def has(self, commit: Commit, sink: str) -> bool:
        known = self.commit(commit.epoch, sink)
        return known is not None and known.matches(commit)

    def commit(self, epoch: int, sink: str) -> Commit | None:
        output = self.decided.get(epoch)
        return None if output is None else commit_of(epoch, output)

    def leads_here(self, epoch: int) -> bool:
        return epoch in self.decided

    def output(self, sink: str) -> SinkOutput | None:
        given = self.expected(sink, "")
        newest = self.decided.get(self.newest)
        return newest and msgspec.structs.replace(newest, before=given)

    def expected(self, sink: str, place: str) -> int | None:
        given = [e for e, o in self.decided.items() if o.tokens and e < self.newest]
        return max(given, default=None)

    @property
    def newest(self) -> int:
        return max(self.decided, default=-1)


@dataclass
class _Walk:
    """Does what runs, crashes and zombies do, in an order drawn by lot."""

    scene: _Scene
    chance: random.Random
    expected: list[Row] = field(default_factory=list)
    runs: list[SinkRun] = field(default_factory=list)
    decided: list[SinkOutput] = field(default_factory=list)

    def go(self, steps: int) -> None:
        self._restart()
        for _ in range(steps):
            match self.chance.choice(("epoch", "epoch", "lost", "crash", "zombie")):
                case "epoch":
                    self._decide(count=self.chance.choice((0, 1, 5)))
                    self._commit()
                case "lost":
                    self.runs[-1].stage(len(self.decided), _rows(len(self.decided)))
                case "crash":
                    if self.chance.random() < 0.5:
                        self._decide(count=3)
                    self._restart()
                case _:
                    self._wake_a_zombie()
        self._decide(count=2)
        self._commit()
        self.scene.shows(*self.expected)

    def _decide(self, *, count: int) -> None:
        epoch = len(self.decided)
        tasks = [_rows(epoch, count=count, task=t) for t in range(2)]
        self.decided.append(self.runs[-1].stage(epoch, *tasks))
        self.expected += [row for rows in tasks for row in rows]

    def _commit(self) -> None:
        self.runs[-1].commit(len(self.decided) - 1, self.decided[-1])
        self.scene.shows(*self.expected)

    def _restart(self) -> None:
        runs = {number: run.token for number, run in enumerate(self.runs, 1)}
        past = _Known(dict(enumerate(self.decided)), runs)
        self.runs.append(self.scene.run(len(self.runs) + 1, past=past))
        if self.decided:
            self._commit()

    def _wake_a_zombie(self) -> None:
        if len(self.runs) < 2 or not self.decided:
            return
        zombie = self.chance.choice(self.runs[:-1])
        zombie.stage(len(self.decided) - 1, _rows(len(self.decided) - 1))
        epoch = len(self.decided) - 1
        self.scene.tries(lambda: zombie.commit(epoch, self.decided[epoch]))
        self.scene.shows(*self.expected)
