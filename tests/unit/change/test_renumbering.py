"""Which generated uids stand for something else: told from the graph alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import riverlock as rl
from riverlock.change.renumbering import Renumbering, plan_renumbering
from riverlock.core.errors import InvalidConfigError
from riverlock.flow.inside import program_of
from riverlock.program.meaning import meanings_of
from riverlock.snapshot.format.records import (
    FORMAT,
    InputRange,
    Manifest,
    OperatorState,
    SinkOutput,
    StateFile,
    Watermark,
)

Step = Callable[[rl.Flow, Any], object]
FILE = StateFile(
    path="f",
    first_epoch=0,
    last_epoch=0,
    first_group=0,
    end_group=1,
    rows=1,
    bytes=1,
    checksum="",
)


class Limit(rl.Process):
    def __init__(self, most: Any = 1) -> None:
        self.most = most

    def on_event(self, e: Any, ctx: Any) -> None: ...


class Other(Limit):
    pass


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Rule:
    def __init__(self, name: str) -> None:
        self.name = name
        self.me = self


class SlottedRule:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def flow_of(*steps: Step) -> rl.Flow:
    flow = rl.Flow("shop")
    schema = "k string, v string, n int, at timestamp"
    stream = flow.read(rl.sources.files("in", format="json", schema=schema), uid="in")
    for step in steps:
        step(flow, stream)
    return flow


def manifest_of(flow: rl.Flow) -> Manifest:
    """What an epoch in which every operator has state says of a flow."""
    meanings = meanings_of(program_of(flow))
    kinds: dict[str, list[str]] = defaultdict(list)
    for uid, meaning in meanings.items():
        kinds[meaning.kind].append(uid)
    state = OperatorState(keys="k string", variables={}, files=(FILE,))
    return Manifest(
        format=FORMAT,
        flow="shop",
        region="main",
        epoch=7,
        parent=None,
        run=1,
        started_us=0,
        decided_us=0,
        now_us=0,
        seed=0,
        parallelism=1,
        key_groups=1,
        code="",
        meanings=meanings,
        operators=dict.fromkeys(kinds["operator"], state),
        inputs=dict.fromkeys(kinds["source"], InputRange(start=0, end=1)),
        watermarks=dict.fromkeys(kinds["event_time"], Watermark(watermark_us=1)),
        outputs={uid: SinkOutput(kind=meanings[uid].what) for uid in kinds["sink"]},
    )


def compared(before: rl.Flow, after: rl.Flow) -> Renumbering:
    return plan_renumbering(
        manifest_of(before), meanings_of(program_of(after)), program_of(after).generated
    )


def uids(found: Renumbering) -> list[str]:
    return [moved.uid for moved in found.moved]


def is_above(n: int, row: Any) -> bool:
    return bool(row.n > n)


def by_default(n: int) -> Callable[[Any], bool]:
    def is_above(row: Any, n: int = n) -> bool:
        return bool(row.n > n)

    return is_above


def above(n: int) -> Callable[[Any], bool]:
    return lambda row: row.n > n


def nested(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda row: test(row)


def table(path: str) -> Any:
    return rl.sinks.sql(f"sqlite:///{path}", table="t", create=True)


def write_to(sink: Any, condition: str = "true", uid: str | None = None) -> Step:
    return lambda _, s: s.where(condition).write(sink, uid=uid)


def count_of(columns: str, condition: str = "true", uid: str | None = None) -> Step:
    return lambda _, s: s.where(condition).key_by(columns).count(uid=uid)


def filtered(function: Callable[[Any], bool]) -> Step:
    return lambda _, s: s.filter(function).key_by("k").count()


def process_of(process: rl.Process, uid: str | None = None) -> Step:
    return lambda _, s: s.key_by("k").process(process, uid=uid)


def filtered_process(process: rl.Process) -> Step:
    return lambda _, s: s.where("n > 1").key_by("k").process(process)


def source_of(path: str) -> Step:
    def read(flow: rl.Flow, stream: Any) -> None:
        source = rl.sources.files(path, format="text")
        flow.read(source).write(rl.sinks.memory())

    return read


def timed(condition: str) -> Step:
    def declare(flow: rl.Flow, stream: Any) -> None:
        rows = stream.where(condition).event_time("at").key_by("k")
        rows.count(uid=f"c{len(program_of(flow).keyed)}")

    return declare


def table_of(condition: str) -> Step:
    def write(flow: rl.Flow, stream: Any) -> None:
        rows = stream.where(condition).key_by("k")
        counts = rows.agg(n="count(*)", uid=f"above-{condition[-1]}")
        counts.write(rl.sinks.memory(), mode="complete")

    return write


PAIRS: dict[str, tuple[Step, Step]] = {
    "keys": (count_of("k"), count_of("v")),
    "conditions": (count_of("k", "n > 1"), count_of("k", "n > 2")),
    "functions": (filtered(lambda row: row.n > 1), filtered(lambda row: row.k == "a")),
    "constants": (filtered(lambda row: row.n > 1), filtered(lambda row: row.n > 2)),
    "defaults": (filtered(by_default(1)), filtered(by_default(2))),
    "partial functions": (
        filtered(partial(is_above, 1)),
        filtered(partial(is_above, 2)),
    ),
    "closures": (filtered(above(1)), filtered(above(2))),
    "classes": (process_of(Limit()), process_of(Other())),
    "settings": (process_of(Limit(1)), process_of(Limit(2))),
    "enums": (process_of(Limit(Side.BUY)), process_of(Limit(Side.SELL))),
    "paths": (process_of(Limit(Path("a"))), process_of(Limit(Path("b")))),
    "objects": (process_of(Limit(Rule("a"))), process_of(Limit(Rule("b")))),
    "slots": (process_of(Limit(SlottedRule("a"))), process_of(Limit(SlottedRule("b")))),
    "patterns": (
        process_of(Limit(re.compile("a"))),
        process_of(Limit(re.compile("b"))),
    ),
    "nested functions": (
        filtered(nested(lambda row: row.n > 1)),
        filtered(nested(lambda row: row.n > 2)),
    ),
    "comparisons": (
        filtered(lambda row: row.n > 1),
        filtered(lambda row: row.n < 1),
    ),
    "branches": (
        filtered(lambda row: row.n and row.k),
        filtered(lambda row: row.n or row.k),
    ),
    "arithmetic": (
        filtered(lambda row: row.n + row.n),
        filtered(lambda row: row.n - row.n),
    ),
    "directories": (
        write_to(rl.sinks.files("a", format="json")),
        write_to(rl.sinks.files("b", format="json")),
    ),
    "databases": (write_to(table("a.db")), write_to(table("b.db"))),
    "servers": (
        write_to(rl.sinks.http("http://localhost/a"), "n > 1"),
        write_to(rl.sinks.http("http://localhost/a"), "n > 2"),
    ),
    "functions of epochs": (
        write_to(rl.sinks.for_each_epoch(lambda rows, epoch: rows.count())),
        write_to(rl.sinks.for_each_epoch(lambda rows, epoch: print(epoch))),
    ),
    "sources": (source_of("in/a"), source_of("in/b")),
    "event times": (timed("n > 1"), timed("n > 2")),
    "whole tables": (table_of("n > 1"), table_of("n > 2")),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_two_that_changed_places_are_told(pair: tuple[Step, Step]) -> None:
    first, second = pair

    moved = compared(flow_of(first, second), flow_of(second, first)).moved

    assert len(moved) == 2
    assert [m.before for m in moved] == [m.uid for m in reversed(moved)]
    assert [m.after for m in moved] == [m.before for m in moved]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_same_code_is_the_same(pair: tuple[Step, Step]) -> None:
    assert not compared(flow_of(*pair), flow_of(*pair)).moved


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_one_before_or_instead_of_another_is_told(pair: tuple[Step, Step]) -> None:
    first, second = pair
    one, both = flow_of(first), flow_of(second, first)

    assert compared(one, both).moved
    assert compared(both, one).moved


def test_the_only_one_of_its_kind_may_change() -> None:
    before, after = flow_of(count_of("k", "n > 1")), flow_of(count_of("k", "n > 2"))
    assert not compared(before, after).moved
    limits = flow_of(process_of(Limit(1))), flow_of(process_of(Limit(2)))
    assert not compared(*limits).moved


CHANGES: dict[str, tuple[tuple[Step, Step], tuple[Step, Step]]] = {
    "what comes before two by different keys": (
        (count_of("k"), count_of("v")),
        (count_of("k", "n > 1"), count_of("v", "n > 1")),
    ),
    "what comes before two of different settings": (
        (process_of(Limit(1)), process_of(Limit(2))),
        (filtered_process(Limit(1)), filtered_process(Limit(2))),
    ),
    "a constant of one": (
        (filtered(lambda row: row.n > 1), filtered(lambda row: row.n > 2)),
        (filtered(lambda row: row.n > 1), filtered(lambda row: row.n > 3)),
    ),
    "a setting of one, to that of the other": (
        (process_of(Limit(1)), process_of(Limit(2))),
        (process_of(Limit(2)), process_of(Limit(2))),
    ),
    "the place of one": (
        (write_to(table("a.db")), write_to(table("b.db"))),
        (write_to(table("a.db")), write_to(table("c.db"))),
    ),
    "what sinks are given": (
        (write_to(table("a.db")), write_to(table("b.db"))),
        (write_to(table("a.db"), "n > 1"), write_to(table("b.db"), "n > 2")),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_code_may_change_where_it_is_clear_what_is_what(
    change: tuple[tuple[Step, Step], tuple[Step, Step]],
) -> None:
    before, after = change

    assert not compared(flow_of(*before), flow_of(*after)).moved


UNCLEAR: dict[str, tuple[tuple[Step, ...], tuple[Step, ...]]] = {
    "constants of both": (
        (count_of("k", "n > 1"), count_of("k", "n > 2")),
        (count_of("k", "n > 3"), count_of("k", "n > 4")),
    ),
    "one is gone, one is changed": (
        (count_of("k", "n > 1"), count_of("k", "n > 2")),
        (count_of("k", "n > 3"),),
    ),
    "settings exchanged, not what comes before": (
        (process_of(Limit(1)), filtered_process(Limit(2))),
        (process_of(Limit(2)), filtered_process(Limit(1))),
    ),
    "places of both": (
        (write_to(table("a.db")), write_to(table("b.db"))),
        (write_to(table("c.db")), write_to(table("d.db"))),
    ),
}


@pytest.mark.parametrize("change", UNCLEAR.values(), ids=UNCLEAR)
def test_what_is_not_clear_is_told(
    change: tuple[tuple[Step, ...], tuple[Step, ...]],
) -> None:
    before, after = change

    found = compared(flow_of(*before), flow_of(*after))

    assert found.moved
    assert "if it is new, give it another uid=" in found.refusals[0].hint


def test_sinks_are_told_by_their_places() -> None:
    first, second = PAIRS["directories"]

    found = compared(flow_of(first, second), flow_of(second, first))

    assert uids(found) == ["files-1", "files-2"]
    assert f'uid="files-1" for sink files {Path("a").absolute()}' in (
        found.refusals[0].hint
    )


def test_sinks_of_which_nothing_is_left_have_no_meaning() -> None:
    assert "memory-1" not in meanings_of(
        program_of(flow_of(write_to(rl.sinks.memory())))
    )


def test_the_only_one_of_its_kind_is_no_other() -> None:
    found = compared(flow_of(process_of(Limit())), flow_of(process_of(Other())))

    assert uids(found) == ["process-1"]
    with pytest.raises(InvalidConfigError) as caught:
        found.check()
    assert 'write uid="process-1"' in caught.value.hint
    assert "give it another uid=" in caught.value.hint


def test_a_uid_that_is_given_is_the_word_of_the_user() -> None:
    before = flow_of(process_of(Limit()), process_of(Other()))
    given = process_of(Other(), "process-1"), process_of(Limit(), "process-2")

    assert not compared(before, flow_of(*given)).moved


def test_what_has_neither_state_nor_offset_may_be_replaced() -> None:
    before = flow_of(process_of(Limit()), process_of(Other()))
    after = flow_of(process_of(Other()), process_of(Limit()))
    empty = OperatorState(keys="k string", variables={})
    newest = msgspec.structs.replace(
        manifest_of(before), operators={"process-1": empty, "process-2": empty}
    )

    assert not plan_renumbering(
        newest, meanings_of(program_of(after)), program_of(after).generated
    ).moved


def test_epochs_of_older_writers_say_nothing() -> None:
    before = flow_of(process_of(Limit()), process_of(Other()))
    after = flow_of(process_of(Other()), process_of(Limit()))
    newest = msgspec.structs.replace(manifest_of(before), meanings={})

    assert not plan_renumbering(
        newest, meanings_of(program_of(after)), program_of(after).generated
    ).moved


def of_another_version(flow: rl.Flow) -> Manifest:
    newest = manifest_of(flow)
    old = {
        uid: msgspec.structs.replace(m, recipe="0/3.9", digest="other", way="other")
        for uid, m in newest.meanings.items()
    }
    return msgspec.structs.replace(newest, meanings=old)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_another_version_of_python_or_of_ours_stops_no_flow(
    pair: tuple[Step, Step],
) -> None:
    newest, after = of_another_version(flow_of(*pair)), flow_of(*pair)

    assert not plan_renumbering(
        newest, meanings_of(program_of(after)), program_of(after).generated
    ).moved


def test_places_are_compared_whatever_version_wrote_them() -> None:
    first, second = PAIRS["directories"]
    newest, after = of_another_version(flow_of(first, second)), flow_of(second, first)

    found = plan_renumbering(
        newest, meanings_of(program_of(after)), program_of(after).generated
    )

    assert uids(found) == ["files-1", "files-2"]


def test_a_table_is_named_by_its_sink() -> None:
    first, second = PAIRS["whole tables"]

    found = compared(flow_of(first, second), flow_of(second, first))

    assert uids(found) == ["memory-1-table", "memory-2-table"]
    hint = found.refusals[0].hint
    assert 'uid="memory-1"' in hint
    assert 'uid="memory-1-table"' not in hint
