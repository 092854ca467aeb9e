"""What an `at most once` region leaves out: once per failure, and never past a cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from riverlock.connectors.rows.reader import RowsReader
from riverlock.connectors.rows.source import Rows
from riverlock.core.types import schema_of
from riverlock.driver.intake.skipping import LeftOut, Skipping

READERS: Any = {"in": RowsReader(Rows(schema=schema_of("n long"), rows=[]))}


def held_at(place: int) -> Callable[[str, Any], Any]:
    return lambda _, end: min(place, end)


def left_out(
    skipping: Skipping, start: int, latest: int, held: int = 1_000
) -> LeftOut | None:
    found = skipping.left_out(READERS, {"in": start}, {"in": latest}, held_at(held))
    return found.get("in")


def test_nothing_is_left_out_without_a_failure() -> None:
    assert left_out(Skipping(), 3, 9) is None


def test_what_waits_is_left_out_once() -> None:
    skipping = Skipping(is_due=True)
    assert left_out(skipping, 3, 9) == LeftOut(9, 6)
    skipping.taken()
    assert left_out(skipping, 9, 12) is None


def test_a_plan_that_comes_to_nothing_changes_nothing() -> None:
    skipping = Skipping(is_due=True)
    assert left_out(skipping, 3, 9) == LeftOut(9, 6)
    # What came since the failure is read.
    assert left_out(skipping, 3, 12) == LeftOut(9, 6)


def test_where_nothing_waits_nothing_is_left_out() -> None:
    skipping = Skipping(is_due=True)
    assert left_out(skipping, 9, 9) is None
    assert left_out(skipping, 9, 12) is None


def test_a_cut_holds_it_and_the_rest_is_left_out_behind_the_marker() -> None:
    skipping = Skipping(is_due=True)
    assert left_out(skipping, 3, 9, held=3) is None
    skipping.taken()
    assert left_out(skipping, 3, 9, held=5) == LeftOut(5, 2)
    skipping.taken()
    assert left_out(skipping, 5, 20) == LeftOut(9, 4)
    skipping.taken()
    assert left_out(skipping, 12, 20) is None


def test_another_failure_leaves_out_what_came_meanwhile() -> None:
    skipping = Skipping(is_due=True)
    assert left_out(skipping, 3, 9) == LeftOut(9, 6)
    skipping.taken()
    skipping.is_due = True
    assert left_out(skipping, 3, 15) == LeftOut(15, 12)
