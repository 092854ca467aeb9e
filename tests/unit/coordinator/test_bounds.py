from __future__ import annotations

from datetime import timedelta

import pytest

import riverlock as rl
from riverlock.coordinator.bounds import hold
from riverlock.core.errors import InvalidConfigError
from riverlock.snapshot.backlog import Sent, Unread, unread

SECOND = 1_000_000


def sent(epoch: int, rows: int) -> Sent:
    return Sent(epoch=epoch, rows=rows, bytes=rows * 10, decided_us=epoch * SECOND)


def test_unread_is_what_a_reader_has_not_passed() -> None:
    epochs = [sent(3, 5), sent(4, 0), sent(5, 7)]
    assert unread(epochs, 0) == Unread(rows=12, bytes=120, since_us=3 * SECOND)
    assert unread(epochs, 4) == Unread(rows=7, bytes=70, since_us=5 * SECOND)
    assert unread(epochs, 6) == Unread()


@pytest.mark.parametrize(
    ("bound", "waits", "why"),
    [
        (rl.Bound(rows=10), Unread(rows=9, bytes=90, since_us=0), None),
        (rl.Bound(rows=10), Unread(rows=10, bytes=1, since_us=0), "10 rows wait"),
        (rl.Bound(bytes=50), Unread(rows=99, bytes=49, since_us=0), None),
        (rl.Bound(bytes=50), Unread(rows=1, bytes=50, since_us=0), "50 bytes wait"),
        (rl.Bound(age="5 s"), Unread(rows=1, bytes=1, since_us=16 * SECOND), None),
        (
            rl.Bound(age=timedelta(seconds=5)),
            Unread(rows=1, bytes=1, since_us=15 * SECOND),
            "wait for 5 seconds, at most 5 seconds",
        ),
        # Rows that are not there have no age.
        (rl.Bound(age="5 s"), Unread(), None),
        (
            rl.Bound(rows=2, age="5 s"),
            Unread(rows=1, bytes=1, since_us=0),
            "20 seconds",
        ),
    ],
)
def test_a_writer_waits_while_a_bound_is_reached(
    bound: rl.Bound, waits: Unread, why: str | None
) -> None:
    found = hold(bound, waits, 20 * SECOND)
    assert (found is None) == (why is None)
    assert why is None or found is None or why in found


def test_a_bound_that_bounds_nothing_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="rows=, bytes= or age="):
        rl.Bound()
    for wrong in ({"rows": 0}, {"bytes": -1}, {"age": "0 s"}, {"age": "soon"}):
        with pytest.raises(InvalidConfigError):
            rl.Bound(**wrong)
    assert str(rl.Bound(rows=1000, age="1 minute")) == "1,000 rows or 1 minute"
