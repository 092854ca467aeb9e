"""What cannot go well any more is not tried again, whichever step met it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import numbers
from tests.chaos.beside import Statuses
from tests.unit.driver.test_sources_away import LIMIT, Moody, bare, end_of

from riverlock.core.errors import ClusterLostError

GONE = ConnectionRefusedError(111, "Connection refused")


class Refusing:
    """A committer whose function needs what is gone."""

    guarantee = "none"
    calls = 0

    def open(self, *_: Any) -> None:
        """It opens well."""

    def commit(self, *_: Any) -> None:
        self.calls += 1
        raise GONE


@pytest.mark.parametrize("where", ["planning", "reading"])
def test_a_run_ends_at_the_first_step_that_fails(where: str, tmp_path: Path) -> None:
    moods: Iterator[Exception | None] = iter([GONE, None])
    statuses = Statuses()
    run = bare(tmp_path, Moody(LIMIT, **{where: moods}), statuses)

    with ExitStack() as stack:
        driver = run._driver(stack)
        driver.lost = lambda: ClusterLostError(master="local[2]")
        with pytest.raises(ClusterLostError, match="no longer answers"):
            driver.run()

    assert list(moods) == [None]  # it was not tried once more
    assert statuses.all[-1].state == "failed"
    bare(tmp_path, Moody(LIMIT), statuses).to_the_end()
    assert end_of(tmp_path) == LIMIT


def test_a_commit_is_left_to_the_next_run(tmp_path: Path) -> None:
    statuses, refusing = Statuses(), Refusing()
    run = bare(tmp_path, Moody(LIMIT), statuses)

    with ExitStack() as stack:
        driver = run._driver(stack)
        driver.committers = dict.fromkeys(driver.committers, refusing)
        driver.lost = lambda: ClusterLostError(master="local[2]")
        with pytest.raises(ClusterLostError):
            driver.run()

    assert refusing.calls == 1
    assert end_of(tmp_path) == numbers.EPOCH_ROWS
    bare(tmp_path, Moody(LIMIT), statuses).to_the_end()
    assert end_of(tmp_path) == LIMIT
    assert list(tmp_path.glob("out/**/epoch=000000000000/*"))
