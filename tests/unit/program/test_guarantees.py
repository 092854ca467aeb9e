"""What regions promise, how that is said, and what follows for each sink."""

from __future__ import annotations

from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.core.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from riverlock.flow.inside import program_of
from riverlock.program.guarantees import NEITHER, Way, way_to_region, ways_to_sinks
from riverlock.program.regions import part_of
from riverlock.testing import rows


def words(flow: rl.Flow) -> dict[str, str]:
    return {uid: str(way) for uid, way in ways_to_sinks(program_of(flow)).items()}


def read(flow: rl.Flow, uid: str = "in") -> rl.Stream:
    return flow.read(rows("n long", []), uid=uid)


def test_one_region_is_exactly_once_unless_the_flow_says_more() -> None:
    plain, loose = rl.Flow("plain"), rl.Flow("loose", guarantee="at most once")
    for flow in (plain, loose):
        read(flow).write(rl.sinks.memory(), uid="out")
    assert words(plain) == {"out": "exactly once (region main)"}
    assert words(loose) == {"out": "at most once (region main)"}


def test_each_sink_is_told_with_the_regions_on_its_way() -> None:
    flow = rl.Flow("shop")
    scored = read(flow)
    scored.region("billing").write(rl.sinks.memory(), uid="bill")
    scored.region("alerts", guarantee="at least once").write(
        rl.sinks.memory(), uid="alerts"
    )
    scored.write(rl.sinks.memory(), uid="all")
    assert words(flow) == {
        "bill": "exactly once (region billing), from main (exactly once)",
        "alerts": "at least once (region alerts), from main (exactly once)",
        "all": "exactly once (region main)",
    }


def test_the_weakest_region_on_the_way_counts() -> None:
    flow = rl.Flow("shop", guarantee="at most once")
    near = read(flow).region("near")
    near.region("far", guarantee="at least once").write(rl.sinks.memory(), uid="far")
    near.write(rl.sinks.memory(), uid="near")
    assert words(flow) == {
        "near": "at most once (region near, itself exactly once),"
        " from main (at most once)",
        "far": f"{NEITHER} (region far, itself at least once),"
        " from near (exactly once), main (at most once)",
    }


def test_only_regions_whose_rows_reach_a_sink_are_on_its_way() -> None:
    flow = rl.Flow("two")
    one = read(flow, "one").region("both", uid="one-both")
    other = read(flow, "other").region("loose", guarantee="at most once")
    other.region("both", uid="other-both").write(rl.sinks.memory(), uid="b")
    one.write(rl.sinks.memory(), uid="a")
    assert words(flow)["a"] == "exactly once (region both), from main (exactly once)"
    assert words(flow)["b"].startswith("at most once (region both, itself exactly")


def test_what_comes_round_a_loop_is_on_the_way() -> None:
    flow = rl.Flow("round")
    again = flow.loop("n long", uid="again")
    every = read(flow).union(again)
    every.write(rl.sinks.memory(), uid="head")
    tried = every.region("loose", guarantee="at most once")
    tried.filter(lambda row: row.n > 0, uid="left").feed(again)
    assert words(flow) == {
        "head": "at most once (region main, itself exactly once),"
        " from loose (at most once)",
    }


@pytest.mark.parametrize(
    ("own", "before", "promise"),
    [
        (EXACTLY_ONCE, (), EXACTLY_ONCE),
        (EXACTLY_ONCE, (AT_LEAST_ONCE,), AT_LEAST_ONCE),
        (EXACTLY_ONCE, (AT_LEAST_ONCE, AT_MOST_ONCE), AT_MOST_ONCE),
        (AT_LEAST_ONCE, (EXACTLY_ONCE, AT_LEAST_ONCE), AT_LEAST_ONCE),
        (AT_LEAST_ONCE, (AT_MOST_ONCE,), NEITHER),
        (AT_MOST_ONCE, (AT_LEAST_ONCE,), AT_MOST_ONCE),
    ],
)
def test_promise(own: str, before: tuple[str, ...], promise: str) -> None:
    ways = tuple((f"r{n}", each) for n, each in enumerate(before))
    assert Way(region="own", guarantee=own, before=ways).promise == promise


def test_the_way_to_a_region_as_a_store_knows_it() -> None:
    promises = {"main": EXACTLY_ONCE, "fan": AT_MOST_ONCE, "end": AT_LEAST_ONCE}
    channels = [("main", "fan"), ("fan", "end"), ("main", "end"), ("end", "main")]
    assert way_to_region("end", promises, channels) == Way(
        region="end",
        guarantee=AT_LEAST_ONCE,
        before=(("fan", AT_MOST_ONCE), ("main", EXACTLY_ONCE)),
    )
    assert str(way_to_region("main", promises, channels)).startswith(AT_MOST_ONCE)
    assert str(way_to_region("alone", {}, ())) == "exactly once (region alone)"


def test_a_region_that_is_entered_twice_has_one_guarantee() -> None:
    flow = rl.Flow("twice")
    one, other = read(flow, "one"), read(flow, "other")
    one.region("loose", guarantee="at least once", uid="first")
    other.region("loose", uid="second")
    with pytest.raises(InvalidFlowError) as caught:
        other.region("loose", guarantee="at most once", uid="third")
    assert caught.value.found == "'at most once'"
    assert ".region('loose', guarantee='at least once')" in caught.value.hint
    assert program_of(flow).guarantees["loose"] == AT_LEAST_ONCE


def test_it_may_be_said_where_the_region_is_entered_last() -> None:
    flow = rl.Flow("last")
    one, other = read(flow, "one"), read(flow, "other")
    one.region("loose", uid="first").write(rl.sinks.memory(), uid="out")
    other.region("loose", guarantee="at most once", uid="second").write(
        rl.sinks.memory(), uid="more"
    )
    assert part_of(program_of(flow), "loose").guarantee == AT_MOST_ONCE
    assert part_of(program_of(flow), "main").guarantee == EXACTLY_ONCE


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("at_least_once", "did you mean 'at least once'?"),
        ("At most once", "did you mean 'at most once'?"),
        ("exactly", "did you mean 'exactly once'?"),
        (7, ""),
    ],
)
def test_other_words_are_refused_with_the_nearest(given: Any, hint: str) -> None:
    flow = rl.Flow("wrong")
    with pytest.raises(InvalidFlowError) as caught:
        read(flow).region("loose", guarantee=given)
    assert caught.value.hint == hint
    assert "'exactly once' or 'at least once' or 'at most once'" in str(caught.value)
    with pytest.raises(InvalidFlowError):
        rl.Flow("wrong", guarantee=given)
