"""Python functions over records, as tasks run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from riverlock.core.errors import UserCodeError
from riverlock.core.types import schema_of
from riverlock.operators.shipped import DEAD, MAIN
from riverlock.worker.row_functions import RowFunction

TEXTS = pa.RecordBatch.from_pydict({"s": ["1,2", "3", "x,1", "4,5"]})


def _function(
    function: Callable[[Any], Any], *, operation: str = "map", keeps_going: bool = True
) -> RowFunction:
    return RowFunction(
        uid="parse",
        operation=operation,
        function=function,
        input=schema_of("s string"),
        output=schema_of("s string, xs array<int>"),
        hidden=(),
        keeps_going=keeps_going,
    )


def _numbers(record: Any) -> dict[str, Any]:
    # An iterator gives its values once.
    return {"s": record.s, "xs": map(int, record.s.split(","))}


def _wrong_type(record: Any) -> dict[str, Any]:
    xs = iter([1, 2]) if "x" not in record.s else "nothing"
    return {"s": record.s, "xs": xs}


def test_a_record_that_does_not_fit_empties_no_iterator_of_the_others() -> None:
    found = _function(_numbers).split(TEXTS)

    assert found[MAIN].to_pylist() == [
        {"s": "1,2", "xs": [1, 2]},
        {"s": "3", "xs": [3]},
        {"s": "4,5", "xs": [4, 5]},
    ]
    [letter] = found[DEAD].to_pylist()
    assert "x,1" in letter["record"]


def test_a_row_of_the_wrong_type_empties_no_iterator_of_the_others() -> None:
    given = _function(lambda r: [_wrong_type(r)], operation="flat_map")

    found = given.split(TEXTS)

    assert [row["xs"] for row in found[MAIN].to_pylist()] == [[1, 2]] * 3
    assert found[DEAD].num_rows == 1


def test_without_dead_letters_the_first_record_that_does_not_fit_ends_the_epoch() -> (
    None
):
    with pytest.raises(UserCodeError):
        _function(_numbers, keeps_going=False).split(TEXTS)
