"""Processes made of text, run with and without calls of their ``on_event``."""

from __future__ import annotations

import linecache
import textwrap
from collections.abc import Sequence
from itertools import count
from typing import Any
from unittest import mock

from riverlock.core.errors import RiverlockError
from riverlock.operators.keyed import execution
from riverlock.operators.keyed.execution import Execution
from riverlock.program.process import Process
from riverlock.testing import Harness, harness

INPUT = "k string, a long, b double, s string, ok boolean, at timestamp"
FRAME = """
from riverlock.program.process import Process
from riverlock.state.spec import Map, Reducing, Value
LIMIT = 3
class Made(Process):
    output = "k string, x double"
    n = Value("long", default=0)
    x = Value("double", default=0.0)
    t = Value("string")
    y = Value("double")
    best = Reducing("long", max)
    scale = 2
    def on_event(self, record, ctx):
{body}
"""
_numbers = count()


def made(body: str, frame: str = FRAME) -> Process:
    """Return a process with this body of ``on_event``, whose text can be found."""
    name = f"<made {next(_numbers)}>"
    text = frame.format(body=textwrap.indent(textwrap.dedent(body).strip(), " " * 8))
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": name}
    exec(compile(text, name, "exec"), space)
    process: Process = space["Made"]()
    return process


class Run:
    """What came of a process over epochs of records."""

    def __init__(self, process: Process, epochs: Sequence[Sequence[Any]]) -> None:
        """Run it; an error ends it."""
        self.harness = harness(process, key="k", input=INPUT, event_time="at")
        self.keys_called = 0
        self.error: tuple[type, str] | None = None
        calls = Execution._by_calls

        def counted(me: Any, data: Any, first: int, last: int) -> Any:
            self.keys_called += last - first
            return calls(me, data, first, last)

        with mock.patch.object(Execution, "_by_calls", counted):
            try:
                for records in epochs:
                    self.harness.send(*records)
            except RiverlockError as error:
                self.error = type(error), str(error)

    @property
    def content(self) -> Any:
        """All that can be seen of it, bit by bit."""
        rows = self.harness.timed("main") if self.harness.outputs else []
        return stored(self.harness), repr(rows), self.error


def stored(h: Harness) -> dict[bytes, bytes]:
    """Return the entries that the process has written."""
    return dict(h._store.scan(b""))


def called(process: Process, *epochs: Sequence[Any]) -> Run:
    """Return a run in which every record is a call."""
    with mock.patch.object(execution, "inlined", side_effect=lambda *_: []):
        return Run(process, epochs)


def both(process: Process, *epochs: Sequence[Any]) -> tuple[Run, Run]:
    """Return a run as it is, and one in which every record is a call."""
    return Run(process, epochs), called(process, *epochs)
