"""What a user sees while a flow runs: a live line, plain lines, or JSON."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.status import lag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from riverlock.snapshot.format.run_status import Status

__all__ = ["Progress", "line", "progress"]

_PLAIN_PERIOD_SECONDS = 5.0


def line(status: Status, now: int) -> str:
    """Return a status as one line."""
    mark = status.watermark_us
    parts = [
        f"epoch {status.epoch}",
        f"{text.count(status.rows_per_second)} records/s",
        f"lag {lag(status.lag_rows)}",
        f"watermark {text.watermark(mark)}{text.holding(status.inputs, now)}",
        f"state {text.counted(status.state_entries, 'entry')}"
        f" {text.size(status.state_bytes)}",
        f"snapshot {text.age(status.updated_us, now)}",
    ]
    if status.bad_rows:
        parts.append(f"bad rows {text.count(status.bad_rows)}")
    if status.files_set_aside:
        parts.append(f"files set aside {text.count(status.files_set_aside)}")
    if status.late_rows:
        parts.append(f"late rows {text.count(status.late_rows)}")
    if status.dead_letters:
        parts.append(f"dead letters {text.count(status.dead_letters)}")
    return " | ".join(parts)


class Progress:
    """Follows a run and reports it; here in plain lines, now and then."""

    def __init__(self) -> None:
        """Begin before the first epoch."""
        self.is_stopping: Callable[[], bool] = lambda: False
        self._flow = ""
        self._began = time.monotonic()
        self._last: Status | None = None
        self._shown = 0.0
        self._before = -1
        # Records by epoch: the last of an earlier run is reported again.
        self._rows: dict[int, int] = {}

    def begin(self, flow: str, *, newest: int | None) -> None:
        """Take the flow's name and newest epoch; records and time count from here."""
        self._flow = flow
        self._before = -1 if newest is None else newest
        self._began = time.monotonic()
        self.say(f"running flow {flow}")

    def say(self, words: str) -> None:
        """Report what happens now."""
        click.echo(words, err=True)

    def warn(self, words: str) -> None:
        """Report what is not as it should be."""
        click.echo(click.style("warning: ", fg="yellow") + words, err=True)

    def update(self, status: Status) -> None:
        """Take the status after an epoch."""
        self._last = status
        if status.epoch is not None and status.epoch > self._before:
            self._rows[status.epoch] = status.rows
        self.show(status)

    def show(self, status: Status) -> None:
        """Show the status if the last line is old enough."""
        if status.state != "running":
            return
        now = time.monotonic()
        if not self._shown or now - self._shown >= _PLAIN_PERIOD_SECONDS:
            self._shown = now
            self.say(line(status, text.now_us()))

    def end(self, now_us: int, *, interrupted: bool, store: str) -> None:
        """Sum up the run in a line."""
        facts = self.summary(now_us, interrupted=interrupted, store=store)
        if not facts["epochs"]:
            at = "" if facts["epoch"] is None else f"; at epoch {facts['epoch']}"
            done = "stopped" if interrupted else "nothing new to read"
            self.say(f"{self._flow}: {done}{at}")
            return
        word = "stopped after" if interrupted else "done:"
        self.say(
            f"{self._flow}: {word} {text.counted(facts['epochs'], 'epoch')},"
            f" {text.counted(facts['rows'], 'record')} in"
            f" {text.duration(facts['seconds'])}; at epoch {facts['epoch']},"
            f" state {text.counted(facts['state_entries'], 'entry')}"
            f" {text.size(facts['state_bytes'])}, store {store}"
        )

    def summary(self, now_us: int, *, interrupted: bool, store: str) -> dict[str, Any]:
        """Return the run as plain data."""
        last = self._last
        return {
            "flow": self._flow,
            "store": store,
            "interrupted": interrupted,
            "epochs": len(self._rows),
            "rows": sum(self._rows.values()),
            "seconds": round(time.monotonic() - self._began, 3),
            "epoch": None if last is None else last.epoch,
            "state_entries": 0 if last is None else last.state_entries,
            "state_bytes": 0 if last is None else last.state_bytes,
            "ended_us": now_us,
        }


class _JsonProgress(Progress):
    """One JSON value per line, on standard output."""

    def say(self, words: str) -> None:
        pass

    def warn(self, words: str) -> None:
        text.print_json({"event": "warning", "text": words})

    def show(self, status: Status) -> None:
        # All fields, also those that the record leaves out when empty.
        fields = {n: getattr(status, n) for n in status.__struct_fields__}
        text.print_json({"event": "status", **fields})

    def end(self, now_us: int, *, interrupted: bool, store: str) -> None:
        facts = self.summary(now_us, interrupted=interrupted, store=store)
        text.print_json({"event": "end", **facts})


class _LiveProgress(Progress):
    """One line at the foot of the terminal that updates itself."""

    def __init__(self) -> None:
        from rich.live import Live

        super().__init__()
        self._console = text.console(stderr=True)
        self._words = ""
        self.live = Live(
            get_renderable=self._render,
            console=self._console,
            refresh_per_second=4,
            transient=True,
            # What a console sink prints goes above the line, unless it is piped away.
            redirect_stdout=sys.stdout.isatty(),
        )

    def say(self, words: str) -> None:
        if self.live.is_started:
            self._words = words
        else:
            super().say(words)

    def warn(self, words: str) -> None:
        self._console.print(f"[yellow]warning:[/] {_escaped(words)}")

    def show(self, status: Status) -> None:
        pass  # the line is drawn anew by itself

    def _render(self) -> Any:
        from rich.text import Text

        words = self._words
        if self._last is not None and self._last.state == "running":
            words = line(self._last, text.now_us())
        if self.is_stopping():
            words = f"finishing the epoch (Ctrl-C again to drop it) | {words}"
        return Text(words, no_wrap=True, overflow="ellipsis")


def _escaped(words: str) -> str:
    from rich.markup import escape

    return escape(words)


@contextlib.contextmanager
def progress(*, as_json: bool) -> Iterator[Progress]:
    """Return what fits: JSON on request, a live line on a terminal, else plain text."""
    if as_json:
        yield _JsonProgress()
    elif sys.stderr.isatty():
        shown = _LiveProgress()
        with shown.live:
            yield shown
    else:
        yield Progress()
