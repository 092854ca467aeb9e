"""``riverlock set`` and the places that show parameters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.cli.stores import beat, claim

from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Change, Parameter
from riverlock.snapshot.format.requests import requests_after
from riverlock.storage.local import LocalStorage

PARAMETERS = {
    "limit": Parameter(type="int", default=100, value=200, since=2, doc="how much"),
    "hosts": Parameter(type="list", default=["a"]),
    "rate": Parameter(type="decimal", default="0.5"),
}


def decide(catalog: Catalog, parameters: dict[str, Parameter], **more: Any) -> None:
    """Decide an epoch after the newest, whose operator has parameters."""
    newest = catalog.resolve(None)
    velocity = newest.operators["velocity"]
    operators = {"velocity": msgspec.structs.replace(velocity, parameters=parameters)}
    made = msgspec.structs.replace(
        newest,
        epoch=newest.epoch + 1,
        parent=newest.epoch,
        operators={**newest.operators, **operators},
        **more,
    )
    assert catalog.decide(made)


@pytest.fixture
def catalog(shop: Path) -> Catalog:
    found = Catalog(LocalStorage(shop))
    decide(found, PARAMETERS)
    return found


def asked(catalog: Catalog) -> list[object]:
    return [request.what for request in requests_after(catalog, 0)]


def test_parameters_are_shown_with_what_the_code_says(
    cli: Any, shop: Path, catalog: Catalog
) -> None:
    lines = cli("set", shop).out.splitlines()

    assert lines[2].split()[:5] == ["velocity.limit", "int", "200", "2", "100"]
    assert lines[2].endswith("how much")
    assert cli("set", shop, "--json").json["parameters"][0]["value"] == ["a"]
    explained = cli("explain", shop).out
    assert "velocity.limit  200, set in epoch 2; the code says 100" in explained
    assert 'velocity.hosts  ["a"], as the code says' in explained
    assert "velocity.limit  int" in cli("status", shop).out
    assert cli("status", shop, "--json").json["parameters"][1]["since"] == 2


def test_no_parameters_are_told_as_such(cli: Any, shop: Path) -> None:
    assert "no operator of epoch 2 declares an rl.Param" in cli("set", shop).out


def test_a_flow_that_does_not_run_is_asked_for_its_next_run(
    cli: Any, shop: Path, catalog: Catalog
) -> None:
    done = cli("set", shop, "velocity.limit=7", 'velocity.hosts=["b"]')
    back = cli("set", shop, "velocity.limit", "--default", "--json")

    assert done.out.splitlines() == [
        "velocity.limit is 7 from the first epoch of the next run on",
        'velocity.hosts is ["b"] from the first epoch of the next run on',
    ]
    assert back.json["epoch"] is None
    assert back.json["run"] is None
    assert asked(catalog) == [
        Change(values={"velocity": {"limit": 7, "hosts": ["b"]}}),
        Change(defaults={"velocity": ("limit",)}),
    ]
    shown = cli("set", shop).out
    assert "asked for: velocity.limit is 7, from the next epoch on" in shown
    assert "asked for: velocity.limit is as the code says" in shown
    assert cli("verify", shop).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("velocity.limit=many",), "a value of kind int"),
        (("velocity.limit=1.5",), "a whole number, not 1.5"),
        (("velocity.rate=high",), "a decimal number"),
        (("velocity.hosts={}",), "a list of JSON values"),
        (("velocity.nothing=1",), "one of hosts, limit, rate"),
        (("pairs.limit=1",), "one with parameters: velocity"),
        (("velocity.limit",), "expected OPERATOR.NAME=VALUE, or --default"),
        (("limit=1",), "expected OPERATOR.NAME=VALUE"),
        (("velocity.limit=1", "--default"), "expected OPERATOR.NAME,"),
        # All or nothing.
        (("velocity.limit=1", "velocity.rate=x"), "a decimal number"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything(
    cli: Any, shop: Path, catalog: Catalog, words: tuple[str, ...], said: str
) -> None:
    done = cli("set", shop, *words)

    assert done.code == 1
    assert said in done.err
    assert asked(catalog) == []


def test_the_epoch_that_a_running_flow_takes_it_up_with_is_told(
    cli: Any, shop: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(catalog, os.getpid())
    beat(catalog)
    put = LocalStorage.put_if_absent

    def take_up(storage: LocalStorage, path: str, data: bytes) -> bool:
        done = put(storage, path, data)
        if "/requests/" in path:  # two more epochs, as a run would decide them
            decide(catalog, PARAMETERS)
            limit = msgspec.structs.replace(PARAMETERS["limit"], value=8, since=5)
            decide(catalog, {"limit": limit}, requests=1)
            decide(catalog, {"limit": limit})
        return done

    monkeypatch.setattr(LocalStorage, "put_if_absent", take_up)
    done = cli("set", shop, "velocity.limit=8", "velocity.rate=1.50")

    assert done.out.splitlines() == [
        "velocity.limit is 8 since epoch 5",
        "the code that runs by now has no parameter for velocity.rate='1.50'",
    ]
    assert done.code == 1
    monkeypatch.undo()
    asked_only = cli("set", shop, "velocity.limit=9", "--wait", "0").out
    assert asked_only == "velocity.limit is 9: run 2 was asked; its next epoch has it\n"
