from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from riverlock.core.values.sameness import is_same


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (0.0, -0.0, False),
        (math.nan, -math.nan, True),
        (True, 1, False),
        (False, 0.0, False),
        # One of them is of a type that was widened.
        (1, 1.0, True),
        (Decimal("1.0"), Decimal("1.00"), True),
        ([1, [0.0]], [1, [-0.0]], False),
        ([1, math.nan], (1, math.nan), True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ([1], [1, 2], False),
        (None, None, True),
        (None, 0, False),
    ],
)
def test_values_are_the_same_if_they_are_stored_alike(
    one: Any, other: Any, expected: bool
) -> None:
    assert is_same(one, other) is expected
    assert is_same(other, one) is expected
