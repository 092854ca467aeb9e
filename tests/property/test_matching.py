"""Matches of random patterns against a search that looks at whole histories."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from tests.property.arrivals import COLUMNS, Row, arrivals, cuts, drive, second

import riverlock as rl
from riverlock.core.types import schema_of
from riverlock.operators.match.match_operator import Match
from riverlock.program.pattern import Pattern
from riverlock.program.time_basis import Timing
from riverlock.testing.harness import Harness, harness

SCHEMA = schema_of(COLUMNS)
KEYS = schema_of("k string")
OUTPUT = schema_of("k string, names array<string>, numbers array<long>")
SPAN = timedelta(seconds=12)
VALUES = 4


class Wanted(NamedTuple):
    """A step: how it follows, the values that fit, and whether they must grow."""

    kind: str
    values: frozenset[int]
    must_grow: bool

    def fits(self, value: int, before: list[int]) -> bool:
        return value in self.values and not (self.must_grow and value <= before[-1])


FITTING = st.frozensets(st.integers(0, VALUES - 1), min_size=1, max_size=3)
STEPS = st.lists(
    st.builds(
        Wanted,
        st.sampled_from(["next", "then", "then", "optional", "without"]),
        FITTING,
        st.booleans(),
    ),
    max_size=4,
).filter(
    # Refused: no event can be between neighbours.
    lambda steps: (
        ("without", "next") not in [(a.kind, b.kind) for a, b in pairwise(steps)]
    )
)


def pattern_of(first: frozenset[int], steps: list[Wanted]) -> Pattern:
    found = rl.pattern("s0", lambda e: e.v in first)
    for number, step in enumerate(steps, 1):
        found = getattr(found, step.kind)(f"s{number}", _predicate(step))
    return found.within(SPAN)


def _predicate(step: Wanted) -> Any:
    if step.must_grow:
        return lambda e, matched: step.fits(e.v, [m.v for m in matched.values()])
    return lambda e: e.v in step.values


def started(pattern: Pattern) -> Harness:
    def select(matched: dict[str, Any]) -> Any:
        events = list(matched.values())
        return events[0].k, list(matched), [e.n for e in events]

    process = Match(pattern, OUTPUT, select, Timing(has_event_time=True))
    return harness(process.bound(KEYS, SCHEMA), key="k", input=SCHEMA, event_time="at")


class Found(NamedTuple):
    """A match as it would be if there were no others."""

    moment: tuple[Any, int]  # deadlines come before the events of their instant
    start: int
    last: int
    taken: tuple[tuple[int, int], ...]  # step, place of the event


def follow(steps: list[Wanted], events: list[Row], start: int) -> Found | None:
    """Return the match that begins with an event, looking at all that follow."""
    taken, pending = [(0, start)], list(enumerate(steps, 1))
    deadline = events[start][3] + SPAN
    for place in range(start + 1, len(events)):
        if not pending or events[place][3] >= deadline:
            break
        before = [events[p][2] for _, p in taken]
        value = events[place][2]
        # Up to the first step that has to come.
        musts = [i for i, (_, s) in enumerate(pending) if s.kind in ("next", "then")]
        open_now = pending[: musts[0] + 1] if musts else pending
        fitting = [(n, s) for n, s in open_now if s.fits(value, before)]
        wanted = [n for n, s in fitting if s.kind != "without"]
        if wanted:
            taken.append((wanted[0], place))
            pending = [(n, s) for n, s in pending if n > wanted[0]]
        elif fitting or (musts and open_now[-1][1].kind == "next"):
            return None
    last = taken[-1][1]
    if not pending:
        return Found((events[last][3], 1), start, last, tuple(taken))
    if all(s.kind in ("optional", "without") for _, s in pending):
        return Found((deadline, 0), start, last, tuple(taken))
    return None


def search(first: frozenset[int], steps: list[Wanted], rows: list[Row]) -> Any:
    """Of all matches take the one that is complete first, then the next after it."""
    for key in "ab":
        events = sorted((r for r in rows if r[0] == key), key=lambda r: (r[3], r[1]))
        starts = [i for i, e in enumerate(events) if e[2] in first]
        found = [f for i in starts if (f := follow(steps, events, i)) is not None]
        yield from _chosen(key, found, events)


def _chosen(key: str, found: list[Found], events: list[Row]) -> Iterator[Any]:
    used = -1
    # Of matches that the same event completes, the one that began first.
    for each in sorted(found, key=lambda f: (f.moment, f.last * f.moment[1], f.start)):
        if each.start > used:
            used = max(used, each.last)
            numbers = [events[place][1] for _, place in each.taken]
            yield key, [f"s{step}" for step, _ in each.taken], numbers


@given(st.data(), arrivals(VALUES), FITTING, STEPS)
def test_match_equals_a_search_over_whole_histories(
    data: st.DataObject, rows: list[Row], first: frozenset[int], steps: list[Wanted]
) -> None:
    h = started(pattern_of(first, steps))

    drive(h, rows, data.draw(cuts(len(rows))))
    h.advance_watermark(second(1_000))

    assert sorted(h.output) == sorted(search(first, steps, rows))
    assert h.side("late") == []
    assert h.keys() == []
    numbers = [n for _, _, found in h.output for n in found]
    assert len(set(numbers)) == len(numbers)


@given(st.data(), arrivals(VALUES), FITTING, STEPS, st.randoms())
def test_match_does_not_depend_on_the_order_of_arrival(
    data: st.DataObject,
    rows: list[Row],
    first: frozenset[int],
    steps: list[Wanted],
    chance: Any,
) -> None:
    """But for records of one instant, so there is one of them per key."""
    rows = list({(r[0], r[3]): r for r in rows}.values())
    expected = started(pattern_of(first, steps))
    expected.send(*sorted(rows, key=lambda r: r[3]))
    expected.advance_watermark(second(1_000))
    h = started(pattern_of(first, steps))
    mixed = sorted(rows, key=lambda r: r[3] + timedelta(seconds=chance.uniform(0, 7)))

    drive(h, mixed, data.draw(cuts(len(rows))))
    h.advance_watermark(second(1_000))

    assert sorted(h.output) == sorted(expected.output)
    assert h.side("late") == []
