"""What a run exits with."""

from __future__ import annotations

import signal

import pytest

from riverlock.cli.run import exit_code


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        (set(), 0),
        ({signal.SIGTERM}, 0),
        ({signal.SIGINT}, 130),
        ({signal.SIGINT, signal.SIGTERM}, 130),
    ],
)
def test_only_an_interrupt_from_the_keyboard_is_no_success(
    signals: set[int], code: int
) -> None:
    assert exit_code(signals) == code
