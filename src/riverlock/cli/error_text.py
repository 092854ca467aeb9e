"""Errors for people: what happened, where, what was not affected, what to do next."""

from __future__ import annotations

import traceback
from typing import Any

import click

from riverlock.cli.text import print_json
from riverlock.core.errors import (
    DefinitionError,
    EpochAbortedError,
    FencedError,
    InternalError,
    RiverlockError,
    SinkError,
    SnapshotError,
    SnapshotNotFoundError,
    SourceError,
    StateError,
    StorageError,
    StoreChangedError,
    UserCodeError,
)
from riverlock.core.user_lines import raising_line

__all__ = ["Trouble", "explain", "report"]

_PLACES = ("store", "path", "source", "sink", "operator", "epoch")


class Trouble:
    """An error taken apart; parts that are unknown are empty."""

    def __init__(
        self, *, what: str, where: str = "", unaffected: str = "", next_step: str = ""
    ) -> None:
        """Keep the four parts."""
        self.what = what
        self.where = where
        self.unaffected = unaffected
        self.next_step = next_step


def explain(error: BaseException) -> Trouble:
    """Take an error apart."""
    if isinstance(error, UserCodeError):
        return _user_code(error)
    if isinstance(error, RiverlockError):
        return Trouble(
            what=error.message,
            where=_place(error),
            unaffected=_unaffected(error),
            next_step=error.hint.strip() or _next_step(error),
        )
    text = str(error).strip().partition("\n")[0]
    name = type(error).__name__
    return Trouble(
        what=f"internal error: {name}: {text}" if text else f"internal error: {name}",
        unaffected="the store: an epoch counts once it is decided, or not at all",
        next_step="run the command again with --debug, and report what it prints",
    )


def _user_code(error: UserCodeError) -> Trouble:
    values: dict[str, Any] = error.__dict__
    at = [f"operator {error.operator!r}", str(values["where"])]
    if error.key is not None:
        at.append(f"key {error.key!r}")
    if error.epoch is not None:
        at.append(f"epoch {error.epoch}")
    lines = [", ".join(at)]
    if values.get("line"):
        lines.append(str(values["line"]))
    if values.get("record") is not None:
        lines.append(f"record: {values['record']}")
    return Trouble(
        what=error.problem,
        where="\n".join(lines),
        unaffected="earlier epochs; nothing of this epoch was committed",
        next_step="fix the code and start again, or send such records to a"
        " dead-letter sink with on_error=",
    )


def _place(error: RiverlockError) -> str:
    """Name the places that the message does not name, and the user's own line."""
    values = error.__dict__
    known = [
        f"{name} {values[name]}"
        for name in _PLACES
        if values.get(name) is not None and str(values[name]) not in error.message
    ]
    line = values.get("line") or raising_line(error.__traceback__)
    if line in error.message:
        line = ""
    return "\n".join(
        [*([", ".join(known)] if known else []), *([line] if line else [])]
    )


def _unaffected(error: RiverlockError) -> str:
    match error:
        case DefinitionError():
            return "the store: nothing has run"
        case FencedError():
            return "the other run; this one has written nothing that counts"
        case StoreChangedError():
            return "what is in the store now; sinks may have more epochs than it"
        case SinkError():
            return "state and decided epochs; the sink gets the epoch at the next start"
        case SnapshotError() | StateError():
            return "the store: nothing was changed"
        case StorageError() | SourceError() | EpochAbortedError():
            return "decided epochs; nothing of the epoch in progress was committed"
        case InternalError():
            return "decided epochs"
        case _:
            return ""


def _next_step(error: RiverlockError) -> str:
    match error:
        case SnapshotNotFoundError() if error.what == "a store":
            return "check the path; `riverlock run` makes a new store"
        case SnapshotNotFoundError() if "operator " in error.what:
            return "see what exists: riverlock state STORE"
        case SnapshotError():
            return "see what exists: riverlock snapshots STORE"
        case StorageError():
            return "look at the storage: riverlock doctor --store STORE"
        case SinkError():
            return "fix the sink, then restart"
        case _:
            return ""


def report(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print an error, for people or programs; return the exit code."""
    code = error.exit_code if isinstance(error, RiverlockError) else 2
    if debug:
        click.echo("".join(traceback.format_exception(error)), err=True)
        trace = getattr(error, "trace", "")
        if trace:
            click.echo(f"in the worker:\n{trace}", err=True)
    trouble = explain(error)
    if as_json:
        print_json({"event": "error", "error": _as_data(error, trouble, code)})
        return code
    click.echo(click.style("error: ", fg="red", bold=True) + trouble.what, err=True)
    parts = {
        "where": trouble.where,
        "not affected": trouble.unaffected,
        "next": trouble.next_step,
    }
    for name, text in parts.items():
        for number, line in enumerate(text.splitlines()):
            click.echo(f"  {name if number == 0 else '':<12}  {line}", err=True)
    return code


def _as_data(error: BaseException, trouble: Trouble, code: int) -> dict[str, Any]:
    values = {
        name: found
        for name, found in error.__dict__.items()
        if isinstance(found, str | int | float | bool | None)
        and name not in ("message", "hint", "trace", "is_placed")
    }
    return {
        "code": getattr(error, "code", "UNEXPECTED"),
        "exit_code": code,
        "what": trouble.what,
        "where": trouble.where,
        "not_affected": trouble.unaffected,
        "next": trouble.next_step,
        "values": values,
    }
