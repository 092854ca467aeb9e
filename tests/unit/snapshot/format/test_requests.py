"""Requests are a log: numbered, in order, each taken up once, also by a fork."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.property.test_parameters import Scaled, ask
from tests.unit.snapshot.small_flow import SmallFlow

import riverlock as rl
from riverlock.driver.region_run import Run
from riverlock.driver.run_options import RunOptions
from riverlock.flow.inside import program_of
from riverlock.snapshot.format.records import Change, Request, Rescale, Stop
from riverlock.snapshot.format.requests import add_request, requests_after, taken_at
from riverlock.storage.local import LocalStorage

NO_ENGINE: Any = None
ROWS = [("a", 1)] * 12


def make(folder: Path) -> SmallFlow:
    return SmallFlow(folder / "store", ROWS, folder / "out", process=Scaled)


def numbers(flow: SmallFlow, after: int = 0) -> list[int]:
    return [request.number for request in requests_after(flow.catalog, after)]


def test_a_number_is_given_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = make(tmp_path)
    flow.run(1)
    put, rival = LocalStorage.put_if_absent, Stop(run=9)

    def raced(storage: LocalStorage, path: str, data: bytes) -> bool:
        monkeypatch.undo()  # somebody else is faster, once
        add_request(flow.catalog, rival, now_us=1)
        return put(storage, path, data)

    monkeypatch.setattr(LocalStorage, "put_if_absent", raced)
    mine = add_request(flow.catalog, Rescale(run=9, parallelism=2), now_us=2)

    found = list(requests_after(flow.catalog, 0))
    assert mine.number == 2
    assert [request.what for request in found] == [rival, mine.what]


def test_a_damaged_request_asks_nothing_and_the_next_is_heard(tmp_path: Path) -> None:
    flow = make(tmp_path)
    flow.run(1)
    for factor in (2, 3):
        ask(flow, factor)
    first = flow.store / flow.catalog.paths.request(1)
    first.write_bytes(first.read_bytes().replace(b"2", b"9"))

    assert numbers(flow) == [2]
    assert flow.run(1) == 1
    assert not rl.stores.verify(str(flow.store)).is_whole
    found = flow.catalog.manifest(1)
    assert found.operators["op"].parameters["factor"].value == 3
    assert found.requests == 2


def test_a_stop_and_a_rescale_of_an_earlier_run_are_taken_no_notice_of(
    tmp_path: Path,
) -> None:
    flow = make(tmp_path)
    flow.run(1)
    add_request(flow.catalog, Rescale(run=1, parallelism=3), now_us=1)

    assert flow.run(2) == 2

    found = flow.catalog.manifest(2)
    assert (found.parallelism, found.requests) == (1, 1)
    taken = taken_at(flow.catalog, 1, after=0)
    assert taken is not None
    assert taken.epoch == 1
    assert taken_at(flow.catalog, 2, after=0) is None


def test_a_fork_begins_with_the_values_and_goes_its_own_way(tmp_path: Path) -> None:
    flow = make(tmp_path)
    flow.run(1)
    ask(flow, 5)
    flow.run(1)
    rl.stores.fork(f"{flow.store}@1", str(tmp_path / "fork"))
    ask(flow, 6)
    fork = SmallFlow(tmp_path / "fork", ROWS, tmp_path / "out2", process=Scaled)

    factors: list[Any] = []
    for each, own in ((fork, None), (fork, 7), (flow, None)):
        if own is not None:
            ask(each, own)
        newest = each.catalog.manifest(each.run(1))
        factors.append(newest.operators["op"].parameters["factor"].value)

    assert factors == [5, 7, 6]
    assert numbers(fork, after=1) == [2]
    assert flow.state()["a"][0] == 3 * (1 + 5 + 6)
    assert fork.state()["a"][0] == 3 * (1 + 5 + 5 + 7)


def test_a_change_that_was_asked_before_an_operator_got_another_name(
    tmp_path: Path,
) -> None:
    flow = make(tmp_path)
    flow.run(1)
    request = add_request(
        flow.catalog,
        Change(values={"op": {"factor": 2}, "left": {"x": 1}}, defaults={"op": ("y",)}),
        now_us=1,
    )
    known = {"renamed": {"factor": rl.Param(1).record}, "left": {}}
    taken: list[Request] = []
    driver: Any = SimpleNamespace(
        plan=SimpleNamespace(parameters=known, run=2), ask=taken.append
    )
    code = rl.Flow("small").renamed({"op": "renamed", "left": "right"})

    run = Run(program_of(code), flow.catalog.storage, NO_ENGINE, RunOptions())
    run._ask(driver, request)

    assert [each.number for each in taken] == [request.number]
    assert taken[0].what == Change(
        values={"renamed": {"factor": 2}, "left": {"x": 1}},
        defaults={"renamed": ("y",)},
    )


def test_a_repair_leaves_a_damaged_request_its_number(tmp_path: Path) -> None:
    flow = make(tmp_path)
    flow.run(1)
    for factor in (2, 3):
        ask(flow, factor)
    first = flow.store / flow.catalog.paths.request(1)
    first.write_bytes(b"damaged")

    rl.stores.repair(str(flow.store))

    assert numbers(flow) == [2]  # without the first, none would be found
