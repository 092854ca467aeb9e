"""What newcomers write first gets an error that says what to write instead."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError


def stream() -> Any:
    columns = "k string, v long, at timestamp"
    source = rl.sources.files("in", format="json", schema=columns)
    return rl.Flow("f").read(source, uid="in").event_time("at")


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda: stream().agg(n="count(*)"), r"\.key_by\(\.\.\.\)\.agg\("),
        (lambda: stream().join(stream()), r"KeyedStream has: \.key_by"),
        (lambda: stream().apply(len, "n long"), r"\.window\(\.\.\.\)\.apply\("),
        (lambda: stream().key_by("k").event_time("at"), r"before \.key_by"),
        (
            lambda: stream().window(rl.tumbling("1 hour")).write(rl.sinks.memory()),
            r"\.agg\(\.\.\.\), \.count\(\)",
        ),
        (lambda: stream().wehre("v > 1"), "no attribute 'wehre'; did you mean 'where'"),
    ],
)
def test_methods_of_other_streams_are_pointed_to(
    use: Callable[[], Any], advice: str
) -> None:
    with pytest.raises(AttributeError, match=advice):
        use()


def test_streams_can_be_copied_and_asked_for_what_they_do_not_have() -> None:
    found = copy.copy(stream())

    assert not hasattr(found, "agg")
    assert hasattr(found, "where")


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.where("v > 1").late,
        lambda s: s.map(tuple, "k string, v long, at timestamp").late,
        lambda s: s.key_by("k").agg(n="count(*)").late,
        lambda s: s.union(s).late,
        lambda s: s.bad,
    ],
)
def test_what_was_found_is_named_not_listed(use: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidFlowError) as caught:
        use(stream())

    assert "(" not in caught.value.message


def test_aggregates_without_names_are_refused() -> None:
    with pytest.raises(InvalidFlowError, match=r"named aggregates.*got 'count"):
        stream().key_by("k").agg("count(*)")
