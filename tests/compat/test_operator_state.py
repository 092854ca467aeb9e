"""The state that operators declare is the one that the format documents (§5.7)."""

from __future__ import annotations

import re
from datetime import timedelta
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest
from tests.docs.blocks import ROOT

import riverlock as rl
import riverlock.operators as operators_package
from riverlock.core.types import schema_of
from riverlock.operators.aggregates.whole_table import WholeTable
from riverlock.operators.base import BuiltIn
from riverlock.operators.by_key.count import Count
from riverlock.operators.by_key.deduplicate import Deduplicate
from riverlock.operators.by_key.map_with_state import MapWithState
from riverlock.operators.by_key.reduce import Reduce
from riverlock.operators.by_key.running_count import RunningCount
from riverlock.operators.by_key.sample import Sample
from riverlock.operators.by_key.top import Ranking, Top
from riverlock.operators.by_key.update_state import UpdateState
from riverlock.operators.joins.interval_join import IntervalJoin
from riverlock.operators.joins.keyed_join import LatestJoin, Lookup
from riverlock.operators.joins.windowed_join import WindowedJoin
from riverlock.operators.match.match_operator import Match
from riverlock.operators.windows.count_windows import Counted
from riverlock.operators.windows.sliding_reduce import SlidingReduce
from riverlock.operators.windows.triggered_windows import Triggered
from riverlock.operators.windows.window_aggregate import WindowAggregate
from riverlock.operators.windows.window_contents import Fold, Kept
from riverlock.operators.windows.window_functions import WindowApply, WindowReduce
from riverlock.operators.windows.window_top import WindowTop
from riverlock.program.time_basis import Timing
from riverlock.program.triggers import Trigger
from riverlock.program.two_inputs import packed_columns
from riverlock.state.spec import specs_of

FORMAT = (ROOT / "docs" / "format.md").read_text()
KEYS, LEFT = schema_of("k string"), schema_of("k string, v long, at timestamp")
RIGHT = schema_of("name string, w long")
BOTH = packed_columns(KEYS, LEFT, RIGHT)
# A type that nothing else has, for what users declare.
STATE = "decimal(7,3)"
DAY, HOURS = timedelta(days=1), rl.sliding("2 hours", "1 hour")


def function(*_: Any) -> Any:
    raise AssertionError


def operators() -> list[tuple[str, BuiltIn]]:
    """Return the operators, each as the table calls it, with all that it may keep."""
    timing, best = Timing(has_event_time=True), Ranking(3, "v", descending=True)
    pattern = rl.pattern("x", lambda _: True).within("1 hour")
    early, name = Trigger(count=1), ("name",)
    return [
        ("`count`", Count()),
        ("`running_count`", RunningCount()),
        ("`reduce`", Reduce(function)),
        ("`map_with_state`", MapWithState(function, STATE, LEFT, "1 hour")),
        ("`update_state_by_key`", UpdateState(function, STATE)),
        ("`agg` over panes", WindowAggregate({}, HOURS, 0)),
        ("mode `complete`", WholeTable()),
        ("`deduplicate`", Deduplicate(DAY, timing)),
        ("`top`", Top(best)),
        ("`sample`", Sample(3)),
        ("`match`", Match(pattern, LEFT, function, timing)),
        ("`window.top`", WindowTop(best, HOURS, 0)),
        ("`window.reduce`", WindowReduce(function, HOURS, 0)),
        ("`window.reduce`", SlidingReduce(function, function, HOURS, 0)),
        ("`window.apply`", WindowApply(function, LEFT, HOURS, 0)),
        ("`count_windows`", Counted(Fold(function), rl.count_windows(2))),
        (
            "trigger, `global_window`",
            Triggered(Fold(function), rl.sessions(DAY), 0, early, accumulates=True),
        ),
        ("`join(within=)`", IntervalJoin("full", name, ("0 s", "1 s"))),
        ("`join(window=)`", WindowedJoin("full", name, HOURS)),
        ("`join_latest`", LatestJoin("left", name, DAY)),
        ("`lookup`", Lookup("left", name, DAY)),
    ]


def kept_by(operator: BuiltIn) -> dict[str, str]:
    """Return what an operator declares, in the words of the table."""
    is_join = isinstance(operator, IntervalJoin | WindowedJoin | LatestJoin | Lookup)
    bound = operator.bound(KEYS, BOTH if is_join else LEFT)
    left = "left" if is_join else "record"
    words = {
        f"folded:{_struct(LEFT)}>>": "content>>",
        _struct(LEFT): left,
        _struct(RIGHT): "right",
        _struct(KEYS): "keys",
        STATE: "state",
    }
    found = {}
    for name, spec in specs_of(type(bound)).items():
        variable = spec.variable
        text = variable.type
        for ddl, word in words.items():
            text = text.replace(ddl, word)
        is_map = variable.kind == "map"
        assert is_map or variable.kind == "value"
        found[name] = f"map<{variable.key},{text}>" if is_map else text
    return found


def _struct(columns: Any) -> str:
    return f"struct<{','.join(f'{f.name}:{f.type.ddl}' for f in columns.fields)}>"


def table() -> dict[str, dict[str, str]]:
    section = FORMAT.partition("### 5.7")[2].partition("\n## ")[0]
    found: dict[str, dict[str, str]] = {}
    for line in re.findall(r"^\| (.* \| `.*) \|$", section, re.MULTILINE):
        operator, variable, kind, _ = line.split(" | ", 3)
        found.setdefault(operator, {})[variable.strip("`")] = re.sub("[`*]", "", kind)
    return found


def test_the_table_lists_what_operators_declare() -> None:
    declared: dict[str, dict[str, str]] = {}
    for name, operator in operators():
        declared.setdefault(name, {}).update(kept_by(operator))

    assert declared == table()


def test_every_operator_is_in_the_table() -> None:
    known = {type(operator).__name__ for _, operator in operators()}
    # What others are made of; and aggregates, whose state users name (§5.2).
    apart = {"BuiltIn", "KeyByKey", "Join", "EventTimeJoin", "WithLateness"}
    apart |= {"WindowFunction", "Aggregate"}
    found = set()
    for info in walk_packages(operators_package.__path__, "riverlock.operators."):
        for name, kind in vars(import_module(info.name)).items():
            if isinstance(kind, type) and issubclass(kind, BuiltIn):
                found.add(name)

    assert {n for n in found if "Session" not in n} == known | apart


@pytest.mark.parametrize("gathered", ["counted", "triggered"])
def test_records_of_apply_are_kept_in_chunks(gathered: str) -> None:
    content = Kept(function, LEFT, by_time=False)
    operator: BuiltIn = Counted(content, rl.count_windows(2))
    if gathered == "triggered":
        operator = Triggered(content, HOURS, 0, Trigger(count=1), accumulates=True)

    kept = kept_by(operator)

    assert kept["chunks"] == "map<string,array<struct<at:bigint,record:record>>>"
    assert "chunks:array<string>>>" in kept["panes" if "panes" in kept else "windows"]
