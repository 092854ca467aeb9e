"""Loops and control inputs give the same on every engine; engines may take turns."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from examples.loop.__main__ import expected as settled
from examples.loop.__main__ import found as settlements
from examples.loop.flow import build
from tests.conformance.test_engines import ENGINES
from tests.unit.driver.test_loop_runs import expected, retrying, some, tries
from tests.unit.operators.test_control_inputs import Limit

import riverlock as rl
from riverlock.testing import rows

PAYMENTS = 60


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of ``flow.run`` that choose an engine."""
    if request.param == "local":
        return {"execution": "local"}
    return {"execution": "jobs", "spark": request.getfixturevalue("spark")}


def retries(place: Path) -> rl.Flow:
    """Return the example, with its output in a folder."""
    paid, given_up = (
        rl.sinks.files(str(place / "out" / how), format="json")
        for how in ("paid", "given-up")
    )
    return build(PAYMENTS, paid, given_up)


def test_a_loop_gives_what_plain_python_gives(
    engine: dict[str, Any], tmp_path: Path
) -> None:
    status = retries(tmp_path).run(
        str(tmp_path / "store"), available_now=True, parallelism=2, **engine
    )
    assert status.loops == {"again": 0}
    assert settlements(tmp_path) == settled(PAYMENTS)


def test_a_loop_over_two_regions_gives_what_plain_python_gives(
    engine: dict[str, Any], tmp_path: Path
) -> None:
    store, given = str(tmp_path / "store"), some(8)
    flow = retrying(given, rl.sinks.memory(), behind="behind")
    flow.run(store, available_now=True, max_rows_per_epoch=6, **engine)
    assert tries(store) == expected(given)


@pytest.mark.spark
def test_one_engine_goes_on_with_what_another_has_in_the_loop(
    spark: Any, tmp_path: Path
) -> None:
    store, given = str(tmp_path / "store"), some(10)
    engines: list[dict[str, Any]] = [
        {"execution": "local"},
        {"execution": "jobs", "spark": spark},
    ]
    for turn in range(4):
        flow = retrying(given, rl.sinks.memory())
        engine = engines[turn % 2]
        status = flow.run(store, available_now=True, max_epochs=1, **engine)
        assert status.loops["again"] > 0
    retrying(given, rl.sinks.memory()).run(store, execution="local", available_now=True)
    assert tries(store) == expected(given)


def test_control_inputs_are_read_before_records(
    engine: dict[str, Any], tmp_path: Path
) -> None:
    flow = rl.Flow("limited", key_groups=8)
    orders = [("a", 11), ("b", 11), ("a", 40), ("b", 10)]
    read = flow.read(rows("user string, amount long", orders), uid="orders")
    limits = flow.read(rows("user string, most long", [("a", 30)]), uid="limits")
    passed = read.key_by("user").process(Limit(), control=limits, uid="limit")
    passed.write(rl.sinks.files(str(tmp_path / "out"), format="json"), uid="out")
    flow.run(str(tmp_path / "store"), available_now=True, **engine)
    found = [
        json.loads(line)
        for file in (tmp_path / "out").glob("epoch=*/*.json")
        for line in file.read_text().splitlines()
    ]
    assert Counter((r["user"], r["amount"]) for r in found) == Counter(
        [("a", 11), ("b", 10)]
    )
