from __future__ import annotations

import pytest

from riverlock.change.input_columns import InputChanges, plan_inputs
from riverlock.core.errors import InvalidConfigError

STORED = {
    "orders": "k string, amount int, note string",
    "totals": "k string, amount int",
}


def changes(columns: str, given: str | None = None, *retired: str) -> InputChanges:
    declared = {"orders": columns}
    if given is not None:
        declared["totals"] = given
    return plan_inputs(
        STORED,
        declared,
        sources=["orders"],
        retired=frozenset(("orders", column) for column in retired),
        epoch=41,
    )


def told(found: InputChanges) -> list[tuple[str | None, str]]:
    return [(step.variable, str(step.action)) for step in found.steps]


@pytest.mark.parametrize(
    ("columns", "given", "expected"),
    [
        ("k string, amount int, note string", "k string, amount int", []),
        ("note string, k string, amount int", "amount int, k string", []),
        (
            "k string, amount int, note string, at timestamp",
            "k string, amount int",
            [("at", "added")],
        ),
        (
            "k string, amount bigint, note string",
            "k string, amount bigint",
            [("amount", "widened")],
        ),
        # No code of the user was given it.
        ("k string, amount int", "k string, amount int", [("note", "dropped")]),
        # Something else makes a column of that name now.
        (
            "k string, value int, note string",
            "k string, value int, amount int",
            [("amount", "dropped"), ("value", "added")],
        ),
        # The step is gone, or never was.
        ("k string, note string", None, [("amount", "dropped")]),
    ],
)
def test_what_can_be_gone_on_with(
    columns: str, given: str, expected: list[tuple[str, str]]
) -> None:
    found = changes(columns, given)

    found.check()
    assert told(found) == expected


@pytest.mark.parametrize(
    ("columns", "given", "says"),
    [
        (
            "k string, note string",
            "k string",
            "amount int is gone, which 'totals' was given",
        ),
        (
            "k string, value int, note string",
            "k string, value int",
            "amount int is gone, which 'totals' was given, value int is new",
        ),
        (
            "k string, amount smallint, note string",
            "k string, amount smallint",
            "amount int is smallint now",
        ),
        (
            "k string, amount string, note string",
            "k string, amount string",
            "amount int is string now",
        ),
    ],
    ids=["dropped", "renamed", "narrowed", "another-type"],
)
def test_what_is_refused_with_a_diff(columns: str, given: str, says: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        changes(columns, given).check()

    assert raised.value.message == (
        "source 'orders' needs the columns that epoch 41 read, more, or wider ones,"
        f" got {says}"
    )
    assert "flow.retired_columns('orders', 'amount')" in raised.value.hint
    changes(columns, given, "amount").check()


def test_an_epoch_of_an_older_writer_says_nothing_of_columns() -> None:
    found = plan_inputs({}, STORED, sources=["orders"], retired=frozenset(), epoch=41)

    assert found.steps == ()


@pytest.mark.parametrize(
    ("old", "new", "action"),
    [
        ("struct<a:int>", "struct<b:string,a:bigint>", "widened"),
        ("array<struct<a:int>>", "array<struct<a:int,b:int>>", "widened"),
        ("map<string,struct<a:int>>", "map<string,struct<a:int,b:int>>", "widened"),
        ("struct<a:int,b:int>", "struct<b:int>", "refused"),
        ("struct<a:int>", "struct<a:string,b:int>", "refused"),
        ("map<int,int>", "map<string,int>", "refused"),
    ],
)
def test_what_is_nested_may_have_more_too(old: str, new: str, action: str) -> None:
    found = plan_inputs(
        {"orders": f"row {old}"},
        {"orders": f"row {new}"},
        sources=["orders"],
        retired=frozenset(),
        epoch=41,
    )

    assert told(found) == [("row", action)]


def test_a_source_whose_columns_are_all_of_unknown_types_can_be_gone_on_with() -> None:
    found = plan_inputs(
        {"orders": ""}, {"orders": ""}, sources=["orders"], retired=frozenset(), epoch=1
    )

    assert found.steps == ()
