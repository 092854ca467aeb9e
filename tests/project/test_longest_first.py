"""Which tests start first."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.longest_first import (
    KAFKA,
    SPARK,
    needs,
    next_file,
    pytest_collection_modifyitems,
    recorded,
)

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


BROKER, QUERY = "tests/chaos/test_sink_kills.py", "tests/integration/test_joins.py"
ENGINES, PLAIN = "tests/conformance/test_engines.py", "tests/compat/test_format.py"


def test_what_a_file_needs_is_known() -> None:
    assert needs(BROKER) == {KAFKA, SPARK}
    assert needs(QUERY) == needs(ENGINES) == {SPARK}
    assert needs(PLAIN) == frozenset()


def test_what_others_have_started_is_not_started_again() -> None:
    none, spark, both = frozenset[str](), frozenset({SPARK}), frozenset({KAFKA, SPARK})
    waiting = [BROKER, QUERY, PLAIN]

    assert next_file(waiting, none, {}) == BROKER
    assert next_file(waiting, none, {"a": both}) == QUERY
    assert next_file(waiting, spark, {"a": both, "b": spark}) == QUERY
    assert next_file(waiting, none, {"a": both, "b": spark}) == PLAIN
    assert next_file(waiting, both, {"a": both, "b": spark}) == BROKER
    # Nobody waits for another worker.
    assert next_file([BROKER, QUERY], none, {"a": both, "b": spark}) == BROKER


def test_files_whose_tests_need_something_are_known(
    request: pytest.FixtureRequest,
) -> None:
    """Of those that this process has collected: in a run of all, all."""
    fixtures = {"spark": SPARK, "kafka": KAFKA, "topic": KAFKA}
    unknown = {
        (path, fixture)
        for item in request.session.items
        for path in [item.nodeid.partition("::")[0]]
        for fixture in fixtures.keys() & set(getattr(item, "fixturenames", ()))
        if fixtures[fixture] not in needs(path)
    }

    assert unknown == set()
