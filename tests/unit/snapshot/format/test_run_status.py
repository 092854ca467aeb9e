"""The figures of a status: what sources gave, whatever became of it then."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from tests.unit.snapshot.builders import manifest

from riverlock.snapshot.format.records import InputRange
from riverlock.snapshot.format.run_status import Status, input_rows, rows_by_source


def test_a_status_is_a_line_that_a_person_can_read() -> None:
    first = Status(
        flow="shop", region="main", run=1, state="running", epoch=None, updated_us=0
    )
    later = structs.replace(
        first, epoch=5, rows=4189, rows_per_second=2000.4, watermark_us=60_000_000
    )

    assert str(first) == (
        "shop: running, no epoch yet, 0 records (0/s), 0 entries of state,"
        " updated 1970-01-01T00:00:00Z"
    )
    assert str(later) == (
        "shop: running, epoch 5, 4,189 records (2,000/s), watermark"
        " 1970-01-01T00:01:00Z, 0 entries of state, updated 1970-01-01T00:00:00Z"
    )


@pytest.mark.parametrize(
    ("inputs", "stages", "expected"),
    [
        # Offsets tell it.
        ({"a": 5, "b": 3}, {"agg": {"rows": 2}}, {"a": 5, "b": 3}),
        # Reading tells it: tasks were given one row per key.
        ({"a": None}, {"agg": {"rows": 114, "rows_read:a": 4189.0}}, {"a": 4189}),
        (
            {"a": None, "b": 3},
            {"agg": {"rows": 2, "rows_read:a": 9.0}},
            {"a": 9, "b": 3},
        ),
        # Two stages read the same rows.
        (
            {"a": None},
            {"x": {"rows": 7, "rows_read:a": 9.0}, "y": {"rows_read:a": 9.0}},
            {"a": 9},
        ),
        # Nobody knows.
        ({"a": None}, {"x": {"rows": 7}, "y": {"rows": 9}}, {"a": None}),
    ],
)
def test_rows_are_those_that_sources_gave(
    inputs: dict[str, int | None],
    stages: dict[str, Any],
    expected: dict[str, int | None],
) -> None:
    ranges = {uid: InputRange(start=0, end=1, rows=n) for uid, n in inputs.items()}
    made = structs.replace(manifest(1), inputs=ranges, metrics={"stages": stages})

    assert rows_by_source(made) == expected
    known = [n for n in expected.values() if n is not None]
    assert input_rows(made) == (sum(known) if known else 9)
