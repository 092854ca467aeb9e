"""A run that waits for its sinks to be opened, on the engine's own loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import numbers

from riverlock.connectors.base.committer import Committer, Owner
from riverlock.core.errors import (
    InvalidConfigError,
    RiverlockError,
    SinkUnavailableError,
    StorageError,
)
from riverlock.driver.ownership import Heartbeat
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.run_status import Status
from riverlock.storage import LocalStorage
from riverlock.storage.base import Reason

AWAY = SinkUnavailableError("numbers", epoch=None, what="it does not answer")
WRONG = InvalidConfigError("sink 'numbers'", expected="a table", found="a view")
LIMIT = 2 * numbers.EPOCH_ROWS


@dataclass
class Door:
    """Answers the first calls of ``open`` with errors."""

    answers: Iterator[RiverlockError]
    statuses: list[Status] = field(default_factory=list)
    inner: Any = None

    def around(self, committer: Committer) -> Committer:
        self.inner = committer
        return self

    @property
    def guarantee(self) -> str:
        return str(self.inner.guarantee)

    def open(self, owner: Owner) -> None:
        for answer in self.answers:
            raise answer
        self.inner.open(owner)

    def commit(self, epoch: int, output: Any) -> None:
        self.inner.commit(epoch, output)


def runner(folder: Path) -> Callable[[Door, int], None]:
    sinks = numbers.file_sinks(str(folder / "out"))
    return lambda door, limit: numbers.run(
        folder / "store",
        sinks,
        limit=limit,
        on_status=door.statuses.append,
        around={"numbers": door.around},
    )


def test_a_sink_that_comes_back_and_refuses_ends_the_run_in_its_status(
    tmp_path: Path,
) -> None:
    run, door = runner(tmp_path), Door(iter([AWAY, WRONG]))
    run(Door(iter(())), LIMIT)

    with pytest.raises(InvalidConfigError, match="got a view"):
        run(door, 2 * LIMIT)

    waiting, failed = door.statuses
    assert (waiting.state, failed.state) == ("waiting", "failed")
    assert failed.error == str(WRONG)
    # What there is in the store is told all the while.
    assert (waiting.epoch, failed.epoch) == (1, 1)
    run(Door(iter([AWAY])), 2 * LIMIT)
    newest = Catalog(LocalStorage(tmp_path / "store")).newest()
    assert newest is not None
    assert newest.inputs["in"].end == 2 * LIMIT


def test_a_store_that_is_away_for_a_moment_is_no_reason_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Heartbeat.check

    def answers() -> Iterator[RiverlockError]:
        monkeypatch.setattr(Heartbeat, "check", fails)
        yield AWAY
        monkeypatch.setattr(Heartbeat, "check", check)

    def fails(heart: Heartbeat) -> StorageError:
        raise Reason.UNREACHABLE.error("read", "runs/")

    door = Door(answers())
    runner(tmp_path)(door, LIMIT)

    assert [s.state for s in door.statuses][-1] == "stopped"
    newest = Catalog(LocalStorage(tmp_path / "store")).newest()
    assert newest is not None
    assert newest.inputs["in"].end == LIMIT
