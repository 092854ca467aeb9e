from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest

import riverlock as rl
from riverlock.change.unnamed import tell_unnamed, unnamed
from riverlock.flow.inside import program_of


class Echo(rl.Process):
    output = "k string"

    def on_event(self, row: Any, ctx: Any) -> Any:
        yield (row.k,)


def build(**uids: str) -> rl.Flow:
    flow = rl.Flow("shop", on_error=rl.sinks.files("dead", format="json"))
    source = rl.sources.files("in", format="json", schema="k string")
    keyed = flow.read(source, uid=uids.get("source")).key_by("k")
    done = keyed.process(Echo(), uid=uids.get("operator"))
    done.write(rl.sinks.files("out", format="json"), uid=uids.get("sink"))
    done.write(rl.sinks.memory())
    return flow


def line(words: str) -> int:
    lines, first = inspect.getsourcelines(build)
    return first + next(n for n, text in enumerate(lines) if words in text)


def test_what_has_no_uid_is_listed_with_the_line_to_write() -> None:
    found = {each.uid: each for each in unnamed(program_of(build()))}

    # Nothing outlasts a sink of memory; letters of the operator follow it.
    assert list(found) == ["files-1", "process-1", "process-1-dead", "files-2"]
    assert found["process-1"].write == 'uid="process-1"'
    assert found["process-1-dead"].write == 'uid="process-1"'
    assert found["process-1"].of == "operator Echo by k of files in"
    assert f"{__file__}:{line('keyed.process')} in build" in found["process-1"].line
    assert f"{__file__}:{line('done.write')} in build" in found["files-2"].line
    assert f"{__file__}:{line('flow.read')} in build" in found["files-1"].line


def test_a_start_tells_what_to_write_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tell_unnamed(program_of(build(source="rows", sink="out")))

    (record,) = caplog.records
    said = record.getMessage()
    assert 'uid="process-1" for operator Echo by k of rows, at ' in said
    assert "done = keyed.process(Echo(), uid=uids" in said
    assert len(said.splitlines()) == 2


def test_nothing_is_told_where_all_have_uids(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        tell_unnamed(program_of(build(source="rows", operator="echo", sink="out")))

    assert not caplog.records
