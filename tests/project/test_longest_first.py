"""Which tests start first."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.longest_first import pytest_collection_modifyitems, recorded

ROOT = Path(__file__).parents[2]


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_files_that_take_long_come_first_and_the_others_stay_in_place() -> None:
    first, second, *_ = recorded()
    names = ["a.py::x", f"{second}::z", "b.py::x", f"{first}::b", f"{first}::a"]
    items = [Item(name) for name in names]

    pytest_collection_modifyitems(items)  # type: ignore[arg-type]

    assert [item.nodeid for item in items] == [
        *(f"{first}::b", f"{first}::a", f"{second}::z"),
        *("a.py::x", "b.py::x"),
    ]


@pytest.mark.parametrize("path", recorded())
def test_recorded_files_are_there(path: str) -> None:
    assert (ROOT / path).exists()
