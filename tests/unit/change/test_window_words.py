from __future__ import annotations

import pytest

import riverlock as rl
from riverlock.change.window_words import changed_windows
from riverlock.operators.windows.window_operator import Gathering
from riverlock.program.triggers import early

TEN = Gathering(window=rl.tumbling("10 minutes"))


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (
            Gathering(window=rl.tumbling("20 minutes")),
            TEN,
            ("windows of 20 minutes", "10 minutes"),
        ),
        (
            Gathering(window=rl.sliding("10 minutes", "1 minute")),
            Gathering(window=rl.sliding("10 minutes", "90 seconds")),
            ("a window every 1 minute", "1 minute 30 seconds"),
        ),
        (
            Gathering(window=rl.tumbling("10 minutes"), lateness_us=3_600_000_000),
            TEN,
            ("lateness of 1 hour", "0 seconds"),
        ),
        (
            Gathering(window=rl.sessions("5 minutes")),
            TEN,
            ("sessions that end after 5 minutes", "windows of 10 minutes"),
        ),
        (
            Gathering(window=rl.sessions(gap_expr="gap")),
            Gathering(window=rl.sessions("5 minutes")),
            ("sessions that end after a gap of the record", "5 minutes"),
        ),
        (
            Gathering(window=rl.count_windows(10)),
            Gathering(window=rl.count_windows(20)),
            ("windows of 10 records", "20"),
        ),
        (
            Gathering(window=rl.tumbling("10 minutes"), trigger=early(count=5)),
            TEN,
            ("triggered windows of 10 minutes", "windows of 10 minutes"),
        ),
        (None, TEN, ("no windows", "windows of 10 minutes")),
        (TEN, None, ("windows of 10 minutes", "no windows")),
    ],
)
def test_a_changed_window_is_told_in_words(
    now: Gathering | None, before: Gathering | None, expected: tuple[str, str]
) -> None:
    texts = [None if each is None else str(each) for each in (now, before)]

    assert changed_windows(*texts) == expected
