from __future__ import annotations

import io
import json
import os
import signal

import msgspec
import pytest
from rich.console import Console

from riverlock.cli import text
from riverlock.cli.progress import Progress, line, progress
from riverlock.cli.run import _interrupts
from riverlock.snapshot.format.input_times import InputTime
from riverlock.snapshot.format.run_status import Status


def _status(epoch: int, rows: int = 10, state: str = "running") -> Status:
    return Status(
        flow="f",
        region="main",
        run=1,
        state=state,
        epoch=epoch,
        updated_us=1_000_000,
        rows=rows,
        rows_per_second=1234.4,
        lag_rows={"a": 1500},
        watermark_us=0,
        state_entries=7,
        state_bytes=2_500,
    )


def test_line_says_all_in_one() -> None:
    assert line(_status(3), now=3_000_000) == (
        "epoch 3 | 1,234 records/s | lag 1,500 records | watermark"
        " 1970-01-01T00:00:00Z | state 7 entries 2.5 kB | snapshot 2.0 s ago"
    )


def test_line_says_which_inputs_are_idle_and_which_hold_time_back() -> None:
    inputs = (
        InputTime(uid="orders", watermark_us=0, holds_back=True),
        InputTime(uid="rates", watermark_us=9, idle_since_us=1_000_000),
        InputTime(uid="clicks", watermark_us=9),
    )

    said = line(msgspec.structs.replace(_status(3), inputs=inputs), now=61_000_000)

    assert "00:00:00Z (orders holds time back, rates idle for 1 min) |" in said


def test_plain_progress_shows_few_lines_and_a_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("riverlock.cli.progress._PLAIN_PERIOD_SECONDS", 3600.0)
    with progress(as_json=False) as shown:
        shown.begin("shop", newest=4)
        for epoch in (4, 5, 6):
            shown.update(_status(epoch))
        shown.update(_status(6, state="stopped"))
        shown.end(0, interrupted=True, store="s")

    done = capsys.readouterr()
    assert done.out == ""
    assert done.err.count("records/s") == 1
    assert "shop: stopped after 2 epochs, 20 records" in done.err


def test_json_progress_is_one_value_per_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress(as_json=True) as shown:
        shown.begin("shop", newest=None)
        shown.warn("careful")
        shown.update(_status(0))
        shown.end(0, interrupted=False, store="s")

    done = capsys.readouterr()
    events = [json.loads(each) for each in done.out.splitlines()]
    assert [e["event"] for e in events] == ["warning", "status", "end"]
    # Also the fields that are empty, so that programs can rely on them.
    assert events[1]["error"] is None
    assert events[1]["dead_letters"] == 0


def test_live_progress_draws_one_line_and_ends_after_the_signals_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        text,
        "console",
        lambda **_: Console(
            file=screen, force_terminal=True, width=200, highlight=False
        ),
    )
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    with progress(as_json=False) as shown, _interrupts() as seen:
        shown.begin("shop", newest=None)
        shown.is_stopping = lambda: bool(seen())
        shown.update(_status(0))
        shown.warn("[odd] text")

    assert type(shown) is not Progress
    assert "epoch 0 | 1,234 records/s" in screen.getvalue()
    assert "[odd] text" in screen.getvalue()


def test_interrupts_tells_of_signals_that_others_handle() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with _interrupts() as seen:
            assert not seen()
            os.kill(os.getpid(), signal.SIGTERM)

            assert seen() == {signal.SIGTERM}
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0 ms"),
        (2.5, "2.5 s"),
        (42, "42 s"),
        (3_600, "1 h"),
        (3_725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_duration_has_at_most_two_units(seconds: float, expected: str) -> None:
    assert text.duration(seconds) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB")]
)
def test_size_has_a_unit(number: int, expected: str) -> None:
    assert text.size(number) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, "null"),
        ("plain", "plain"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        (True, "true"),
        (b"\x01", "0x01"),
        ({"a": 1}, '{"a":1}'),
    ],
)
def test_value_is_safe_on_a_terminal(found: object, expected: str) -> None:
    assert text.value(found) == expected
