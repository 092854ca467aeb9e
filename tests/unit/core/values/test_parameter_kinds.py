from __future__ import annotations

import json
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import pytest

from riverlock.core.values.parameter_kinds import KINDS, kind_of, live, parsed, stored
from riverlock.snapshot.format.records import Parameter
from riverlock.snapshot.format.sealed import seal, unseal

VALUES: list[tuple[str, Any, str]] = [
    ("bool", True, "true"),
    ("int", -(2**63) + 1, str(-(2**63) + 1)),
    ("float", 0.1, "0.1"),
    ("str", "a = b", "a = b"),
    ("str", "7", "7"),
    ("decimal", Decimal("10.50"), "10.50"),
    ("list", [1, [None, True], {"a": 0.5}], '[1, [null, true], {"a": 0.5}]'),
    ("dict", {"a": []}, '{"a": []}'),
]


@pytest.mark.parametrize(("kind", "value", "text"), VALUES)
def test_values_come_back_from_json_and_text(kind: str, value: Any, text: str) -> None:
    kept = json.loads(json.dumps(stored(kind, value)))

    assert kind_of(value) == kind
    assert stored(kind, kept) == kept
    for found in (live(kind, kept), live(kind, parsed(kind, text))):
        assert found == value
        assert type(found) is type(value)


def test_every_kind_was_tried() -> None:
    assert {kind for kind, _, _ in VALUES} == set(KINDS)


def test_whole_numbers_are_numbers_too() -> None:
    assert type(stored("float", 3)) is float
    assert stored("decimal", 3) == "3"
    assert kind_of(None) is kind_of(b"") is kind_of((1,)) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bool", 1),
        ("int", True),
        ("int", 1.0),
        ("int", 2**63),
        ("float", float("nan")),
        ("float", "1"),
        ("str", 1),
        ("decimal", "NaN"),
        ("decimal", "x"),
        ("decimal", 0.5),
        ("list", {}),
        ("list", [float("inf")]),
        ("list", [Decimal(1)]),
        ("dict", {1: 2}),
        ("dict", {"a": (1,)}),
        # As the shell gives bytes that are no text.
        ("str", "\udcff"),
        ("list", ["\udcff"]),
        ("dict", {"\udcff": 1}),
    ],
)
def test_other_values_are_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r", not |64 bits"):
        stored(kind, value)


def test_other_dictionaries_and_lists_are_plain_ones_too() -> None:
    class Names(list[str]):
        pass

    assert kind_of(OrderedDict(a=1)) == "dict"
    assert type(stored("dict", OrderedDict(a=1))) is dict
    assert kind_of(Names()) == "list"


def test_user_code_gets_a_copy() -> None:
    kept = [[1]]

    live("list", kept)[0].append(2)

    assert kept == [[1]]


def test_a_dictionary_is_in_the_order_in_which_manifests_have_it() -> None:
    found = stored("dict", {"b": {"z": 1, "y": 2}, "a": [{"d": 1, "c": 2}]})
    record = Parameter(type="dict", default=found)

    read = unseal(seal(record), Parameter, path="")

    assert json.dumps(read.default) == json.dumps(found)  # unlike ==, in order
