"""State that can never be forgotten is told, and what to write instead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import riverlock as rl
from riverlock.flow.inside import program_of
from riverlock.operators.endless_state import endless_states, tell_endless_states


class Own(rl.Process):
    output = "user string"

    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        yield (record.user,)


def _stream(flow: rl.Flow, *, bounded: bool = False) -> rl.Stream:
    source = rl.sources.files(
        "in/", format="json", schema="user string, at timestamp", bounded=bounded
    )
    return flow.read(source).event_time("at")


@pytest.mark.parametrize(
    "use",
    [
        lambda by: by.agg(n="count(*)", uid="op"),
        lambda by: by.count(uid="op"),
        lambda by: by.reduce(lambda a, b: a, uid="op"),
        lambda by: by.top(3, by="at", uid="op"),
        lambda by: by.window(rl.global_window(), trigger=rl.early(count=5)).count(
            uid="op"
        ),
    ],
    ids=["agg", "count", "reduce", "top", "global window"],
)
def test_state_that_only_grows_is_told(
    use: Callable[[rl.KeyedStream], rl.Stream], caplog: pytest.LogCaptureFixture
) -> None:
    flow = rl.Flow("shop")
    use(_stream(flow).key_by("user"))

    (found,) = endless_states(program_of(flow))
    with caplog.at_level(logging.WARNING, "riverlock"):
        tell_endless_states(program_of(flow))

    assert (found.uid, found.keys) == ("op", ("user",))
    assert f"{__file__}:" in found.line
    (told,) = [r.getMessage() for r in caplog.records]
    assert "'op' keeps state for every user and never forgets any" in told
    assert "rl.tumbling" in told


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.key_by("user").window(rl.tumbling("1 hour")).count(),
        lambda s: s.key_by("user").window(rl.sessions("1 hour")).agg(n="count(*)"),
        lambda s: s.key_by("user").deduplicate(within="1 hour"),
        lambda s: s.key_by("user").process(Own()),
        lambda s: s.key_by("user").map_with_state(
            lambda r, s: (None, s), "int", "n int"
        ),
        lambda s: s.window(rl.global_window(), trigger=rl.early(count=5)).count(),
    ],
    ids=["tumbling", "sessions", "deduplicate", "process", "state of users", "no key"],
)
def test_state_that_can_be_forgotten_is_not_told(
    use: Callable[[rl.Stream], rl.Stream],
) -> None:
    flow = rl.Flow("shop")
    use(_stream(flow))

    assert endless_states(program_of(flow)) == []


def test_an_input_that_ends_is_not_endless() -> None:
    flow = rl.Flow("shop")
    _stream(flow, bounded=True).key_by("user").count()

    assert endless_states(program_of(flow)) == []
