"""A join over windows equals a nested loop per window, however records came."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_joins import Arrivals, Event, arrivals, instant, late, run

from riverlock.core.times import duration_us
from riverlock.operators.joins.windowed_join import WindowedJoin
from riverlock.program.windows import TimeWindows

# Sizes and slides in seconds; panes are shorter than slides in the second.
WINDOWS = [(5, 5, 0), (6, 4, 1), (9, 3, 0)]
Key = tuple[str | None, int]  # key, and when the window ends


def windows(shape: tuple[int, int, int]) -> TimeWindows:
    size, slide, offset = (duration_us(timedelta(seconds=s)) for s in shape)
    return TimeWindows(size_us=size, slide_us=slide, offset_us=offset)


def ends(shape: tuple[int, int, int], at: int) -> list[int]:
    size, slide, offset = shape
    return [e for e in range(at + 1, at + size + 1) if (e - offset - size) % slide == 0]


def placed(
    case: Arrivals, side: list[list[Event]], shape: tuple[int, int, int]
) -> tuple[dict[Key, list[int]], Counter[int]]:
    """Return the numbers of records by window, and those that are in none."""
    found: dict[Key, list[int]] = {}
    too_late: Counter[int] = Counter()
    for part, reached in zip(side, case.late_at, strict=True):
        for key, at, number in part:
            mine = [] if at is None else ends(shape, at)
            is_open = [e for e in mine if reached is None or e > reached]
            for end in is_open:
                found.setdefault((key, end), []).append(number)
            if not is_open:
                too_late[number] += 1
    return found, too_late


def expected(
    lefts: dict[Key, list[int]], rights: dict[Key, list[int]], how: str
) -> Counter[Any]:
    rows: Counter[Any] = Counter()
    for place in {**lefts, **rights}:
        mine, theirs = lefts.get(place, []), rights.get(place, [])
        is_met = bool(mine and theirs) and place[0] is not None
        pairs: list[tuple[Any, Any]] = []
        if is_met and how not in ("semi", "anti"):
            pairs = list(product(mine, theirs))
        elif is_met and how == "semi":
            pairs = [(n, None) for n in mine]
        elif not is_met:
            if how in ("left", "full", "anti"):
                pairs += [(n, None) for n in mine]
            if how in ("right", "full"):
                pairs += [(None, n) for n in theirs]
        rows.update((*place, *pair) for pair in pairs)
    return rows


def summary(rows: list[Any], shape: tuple[int, int, int]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key, at, number, _, *rest, start, end in rows:
        assert end - start == timedelta(seconds=shape[0])
        assert at is None or start <= at < end
        right = rest[1] if rest else None
        assert right is None or start <= rest[0] < end
        found[(key, int(end.timestamp()), number, right)] += 1
    return found


@pytest.mark.parametrize("how", WindowedJoin.kinds)
@given(case=arrivals(jitter=20), shape=st.sampled_from(WINDOWS))
@settings(max_examples=8)
def test_windowed_join_equals_a_nested_loop_per_window(
    how: str, case: Arrivals, shape: tuple[int, int, int]
) -> None:
    h = run(WindowedJoin(how, ("name",), windows(shape)), case)

    lefts, late_lefts = placed(case, case.lefts, shape)
    rights, late_rights = placed(case, case.rights, shape)
    assert summary(h.output, shape) == expected(lefts, rights, how)
    assert (late(h, "left"), late(h, "right")) == (late_lefts, late_rights)
    assert h.late_rows == len(h.side("late"))
    for key in ("a", "b", None):
        assert h.timers(key) == []
    assert h.keys() == []


@given(case=arrivals(), shape=st.sampled_from(WINDOWS))
@settings(max_examples=10)
def test_windowed_join_does_not_depend_on_epochs_and_order(
    case: Arrivals, shape: tuple[int, int, int]
) -> None:
    whole = Arrivals(
        [sorted((e for part in case.lefts for e in part), key=lambda e: e[1] or 0)],
        [sorted((e for part in case.rights for e in part), key=lambda e: e[1] or 0)],
        case.delay,
        case.follows_keyed,
    )

    parts, one = (
        run(WindowedJoin("full", ("name",), windows(shape)), each)
        for each in (case, whole)
    )

    assert summary(parts.output, shape) == summary(one.output, shape)
    assert parts.side("late") == []
    # Rows of a window have its last instant, so that windows can be made of them.
    moment = timedelta(microseconds=1)
    last = {int((row[-1] - moment - instant(0)) / moment) for row in parts.output}
    assert {t for _, t in parts.timed("main")} == last
