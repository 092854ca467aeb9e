from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.operators.match.automaton import Partial, advanced, expired
from riverlock.program.pattern import Pattern

T = datetime(2026, 1, 1, tzinfo=UTC)
NO_FUNCTION: Any = "a"
OF_NONE: Any = lambda: True  # noqa: E731
OF_THREE: Any = lambda a, b, c: True  # noqa: E731


def second(number: int) -> datetime:
    return T + timedelta(seconds=number)


def letter(wanted: str) -> Any:
    return lambda event: wanted in event


def matches(pattern: Pattern, text: str) -> list[str]:
    """Events are words, a second apart; returns the matches as ``name=event``."""
    partials: list[Partial] = []
    found: list[Partial] = []
    events = text.split()
    for number, event in enumerate(events):
        partials, ended = expired(pattern, partials, second(number))
        partials, complete = advanced(pattern, partials, event, second(number))
        found += [*ended, *([complete] if complete else [])]
    found += expired(pattern, partials, second(1_000))[1]
    return [
        " ".join(f"{n}={e}" for n, e in each.matched(pattern).items()) for each in found
    ]


def begun() -> Pattern:
    return rl.pattern("a", letter("a")).within("5 seconds")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", ["a=a b=b"]),
        ("a x x b", ["a=a b=b"]),
        ("b a", []),
        ("a x x x b", ["a=a b=b"]),
        ("a x x x x b", []),  # exactly within: too late
        ("a1 a2 b1 b2", ["a=a1 b=b1"]),  # a2 had begun before b1 came
        ("a1 b1 a2 b2", ["a=a1 b=b1", "a=a2 b=b2"]),
        ("a1 x x x a2 x b", ["a=a2 b=b"]),
        ("ab1 ab2 ab3", ["a=ab1 b=ab2"]),  # ab2 is used up
        ("ab1 ab2 ab3 ab4", ["a=ab1 b=ab2", "a=ab3 b=ab4"]),
    ],
)
def test_then_takes_the_first_event_that_fits(text: str, expected: list[str]) -> None:
    assert matches(begun().then("b", letter("b")), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", ["a=a b=b"]),
        ("a x b", []),
        ("a1 a2 b", ["a=a2 b=b"]),
    ],
)
def test_next_takes_only_the_event_right_after(text: str, expected: list[str]) -> None:
    assert matches(begun().next("b", letter("b")), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a c", ["a=a c=c"]),
        ("a b c", ["a=a b=b c=c"]),
        ("a x b x c", ["a=a b=b c=c"]),
        ("a bc c", ["a=a b=bc c=c"]),  # of two steps, the first
        ("a c b", ["a=a c=c"]),
    ],
)
def test_optional_is_taken_if_it_comes(text: str, expected: list[str]) -> None:
    found = begun().optional("b", letter("b")).then("c", letter("c"))

    assert matches(found, text) == expected


def test_optional_before_next_leaves_no_room_either() -> None:
    found = begun().optional("b", letter("b")).next("c", letter("c"))

    assert matches(found, "a b c") == ["a=a b=b c=c"]
    assert matches(found, "a c") == ["a=a c=c"]
    assert matches(found, "a x c") == []
    assert matches(found, "a b x c") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b", ["a=a b=b"]),
        ("a", ["a=a"]),
        ("a x x x x b", ["a=a"]),
        ("a1 a2 b", ["a=a1 b=b"]),
        ("a1 a2", ["a=a1", "a=a2"]),  # the time of a1 is over first; a2 is not of it
    ],
)
def test_optional_at_the_end_is_waited_for(text: str, expected: list[str]) -> None:
    assert matches(begun().optional("b", letter("b")), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a c", ["a=a c=c"]),
        ("a b c", []),
        ("b a x c b", ["a=a c=c"]),
        ("a bc", ["a=a c=bc"]),  # it is the end, so it is not in between
        ("a1 b a2 c", ["a=a2 c=c"]),
    ],
)
def test_without_forbids_events_in_between(text: str, expected: list[str]) -> None:
    found = begun().without("b", letter("b")).then("c", letter("c"))

    assert matches(found, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ["a=a"]),
        ("a b", []),
        ("a x x x b", []),
        ("a x x x x b", ["a=a"]),
        ("a1 a2 x b", []),
        ("a1 x x a2 x b", ["a=a1"]),
        ("a1 x x a2 x x", ["a=a1", "a=a2"]),
    ],
)
def test_without_at_the_end_forbids_until_the_time_is_over(
    text: str, expected: list[str]
) -> None:
    assert matches(begun().without("b", letter("b")), text) == expected


def test_a_match_that_waited_ends_those_that_share_its_events() -> None:
    found = begun().then("b", letter("b")).without("c", letter("c"))

    assert matches(found, "a1 a2 b x x x x") == ["a=a1 b=b"]
    assert matches(found, "a1 b1 a2 b2 x x x") == ["a=a1 b=b1", "a=a2 b=b2"]


def test_deadlines_count_also_if_the_span_was_made_shorter() -> None:
    long, short = (
        Partial(began=n, last=n, deadline=second(at), taken=((0, f"a{n}"),))
        for n, at in ((1, 100), (2, 10))
    )

    failing = begun().then("b", letter("b"))
    assert expired(failing, [long, short], second(10)) == ([long], [])
    waiting = begun().without("b", letter("b"))
    assert expired(waiting, [long, short], second(10)) == ([], [short])
    assert expired(waiting, [long, short], second(100)) == ([], [short])


def test_predicates_may_take_the_events_matched_so_far() -> None:
    def is_longer(event: str, matched: dict[str, str]) -> bool:
        return len(event) > max(map(len, matched.values()))

    found = begun().then("b", is_longer).then("c", is_longer)

    assert matches(found, "a x xx xx xxx") == ["a=a b=xx c=xxx"]


def test_a_pattern_of_one_step_matches_every_event_that_fits() -> None:
    assert matches(begun(), "a1 x a2") == ["a=a1", "a=a2"]


def test_predicates_written_in_c_take_the_event() -> None:
    found = rl.pattern("a", operator.methodcaller("startswith", "a")).within("1s")

    assert matches(found, "a b") == ["a=a"]


@pytest.mark.parametrize(
    ("build", "what", "expected"),
    [
        (lambda: rl.pattern("", letter("a")), "step of a pattern", "a name"),
        (lambda: rl.pattern(letter("a"), letter("a")), "step of a pattern", "a name"),
        (lambda: rl.pattern("a", NO_FUNCTION), "predicate of step 'a'", "a function"),
        (lambda: rl.pattern("a", OF_NONE), "predicate of step 'a'", "a function"),
        (
            lambda: rl.pattern("a", OF_THREE),
            "predicate of step 'a'",
            "a function of the event, or",
        ),
        (lambda: begun().then("a", letter("b")), "step 'a'", "a name that no other"),
        (
            lambda: begun().without("b", letter("b")).next("c", letter("c")),
            "next('c')",
            "then() after without()",
        ),
        (lambda: begun().within("never"), "within of a pattern", "a duration"),
        (lambda: begun().within("0 seconds"), "within of a pattern", "a duration"),
    ],
)
def test_impossible_patterns_are_refused(build: Any, what: str, expected: str) -> None:
    with pytest.raises(InvalidFlowError) as caught:
        build()

    assert what in caught.value.what
    assert expected in caught.value.expected
