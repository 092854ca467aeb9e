"""A change log: what it lets go of when it is written."""

from __future__ import annotations

from riverlock.core.types import schema_of
from riverlock.operators.shipped import OperatorProgram
from riverlock.program.process import Process
from riverlock.state.changelog import ChangeLog
from riverlock.state.spec import Value
from riverlock.state.store import EVENT


class _Counting(Process):
    n = Value("bigint", default=0)


def test_changelog_forgets_what_was_written_but_not_what_others_took() -> None:
    program = OperatorProgram(
        uid="op",
        process=_Counting(),
        keys=schema_of("k string"),
        input=schema_of("k string"),
        outputs={},
    )
    log = ChangeLog(program.layout(), "op")
    at = (b"\x00\x00a", 0, ("a",))
    log.row("key", at, (1,), b"1")
    log.timer(at, EVENT, 7, on=True)
    log.added = 1
    ids, _ = log.entries()
    timers = log.timers

    log.forget()

    assert log.is_empty
    assert log.entries() == ([], [])
    assert log.timers == []
    assert log.added == 1
    assert len(ids) == 2
    assert len(timers) == 1
