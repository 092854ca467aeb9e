"""The oracle must see what it is there for: each kind of wrong result, once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.chaos import oracle
from tests.chaos.worker_flow import Options

pytestmark = [pytest.mark.chaos, pytest.mark.spark]


def _a_file(options: Options, sink: str) -> Path:
    return next((Path(options.out) / sink / "epoch=000000000002").iterdir())


def _lose_a_row(options: Options) -> None:
    path = _a_file(options, "events")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))


def _repeat_a_row(options: Options) -> None:
    path = _a_file(options, "odd")
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")


def _change_a_total(options: Options) -> None:
    path = _a_file(options, "events")
    path.write_text(path.read_text().replace('"total":', '"total":1', 1))


def _lose_an_epoch(options: Options) -> None:
    shutil.rmtree(_a_file(options, "windows").parent)


def _show_an_undecided_epoch(options: Options) -> None:
    folder = _a_file(options, "ledger").parent
    shutil.copytree(folder, folder.with_name("epoch=000000000009"))


def _leave_something_staged(options: Options) -> None:
    # Of an epoch that was decided, the next run would take it away.
    path = Path(options.out) / "odd/_riverlock/staged/000000000999/0123"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "spoil",
    [
        _lose_a_row,
        _repeat_a_row,
        _change_a_total,
        _lose_an_epoch,
        _show_an_undecided_epoch,
        _leave_something_staged,
    ],
)
def test_oracle_notices(
    clone: Callable[[], Options], spoil: Callable[[Options], None]
) -> None:
    options = clone()
    oracle.check(options, complete=False)

    spoil(options)

    with pytest.raises(AssertionError):
        oracle.check(options, complete=False)
