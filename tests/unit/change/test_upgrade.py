"""What becomes of stored state, planned before anything runs."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import riverlock as rl
from riverlock.change.upgrade import Action, Declared, Upgrade, plan_upgrade
from riverlock.change.widening import is_wider
from riverlock.core.errors import InvalidConfigError, StateSchemaError
from riverlock.core.types import schema_of, type_of
from riverlock.snapshot.format.records import (
    OperatorState,
    Parameter,
    StateFile,
    Variable,
)
from riverlock.snapshot.format.state_files import merge_tables
from riverlock.state.copy.rebuilding import changes_of
from riverlock.state.layout import StateLayout
from riverlock.state.spec import StateSpec

FILE = StateFile(
    path="p",
    first_epoch=0,
    last_epoch=0,
    first_group=0,
    end_group=1,
    rows=1,
    bytes=1,
    checksum="c",
)


def declared(keys: str = "k string", **specs: StateSpec) -> Declared:
    for name, spec in specs.items():
        spec.name = name
    return Declared(layout=StateLayout(schema_of(keys), specs), windows=None)


def stored(keys: str = "k string", **variables: Variable) -> OperatorState:
    return OperatorState(keys=keys, variables=variables, files=(FILE,), entries=1)


def value(kind: str, **more: Any) -> Variable:
    return Variable(kind="value", type=kind, **more)


def plan(
    before: dict[str, OperatorState],
    after: dict[str, Declared],
    renamed: dict[str, str] | None = None,
    retired: tuple[str, ...] = (),
) -> Upgrade:
    return plan_upgrade(
        before,
        after,
        renamed=renamed or {},
        retired=frozenset(retired),
        columns=lambda state: [*state.variables, "dropped"],
    )


def actions(upgrade: Upgrade) -> dict[tuple[str, str | None], Action]:
    return {(s.operator, s.variable): s.action for s in upgrade.steps}


def test_state_is_rewritten_for_a_new_variable_of_a_dropped_name() -> None:
    before = {"op": stored(n=value("int"))}

    other = plan(before, {"op": declared(n=rl.Value("int"), new=rl.Value("int"))})
    same = plan(
        before, {"op": declared(n=rl.Value("int"), dropped=rl.Map("int", "int"))}
    )

    assert other.changes_nothing
    assert not same.changes_nothing
    assert same.moves == {"op": {}}
    assert "left behind" in same.steps[-1].detail


def test_a_migration_is_done_though_the_type_is_only_wider() -> None:
    before = stored(
        paid=value("int"),
        same=value("bigint"),
        old=value("int"),
        by=Variable(kind="map", type="int", key="int"),
    )
    cents: Any = {"migrate": lambda euros: euros * 100}
    after = declared(
        paid=rl.Value("bigint", **cents),
        same=rl.Value("bigint", **cents),
        new=rl.Value("int", formerly="old", **cents),
    )

    found = plan({"op": before}, {"op": after})

    assert set(found.moves["op"]) == {"paid", "old"}
    assert actions(found)["op", "paid"] == Action.MIGRATE
    # It has the type already: an earlier start has done it.
    assert actions(found)["op", "same"] == Action.KEEP

    other_keys = declared(by=rl.Map("bigint", "bigint", **cents))
    with pytest.raises(StateSchemaError):
        plan({"op": before}, {"op": other_keys}).check()


def test_each_change_has_its_word() -> None:
    before = stored(
        n=value("int"), old=value("int"), gone=value("int"), price=value("double")
    )
    after = declared(
        n=rl.Value("bigint"),
        new=rl.Value("bigint", formerly="old"),
        price=rl.Value("string", migrate=str),
        more=rl.List("int"),
    )

    found = plan({"op": before}, {"op": after})

    assert actions(found) == {
        ("op", None): Action.KEEP,
        ("op", "n"): Action.WIDEN,
        ("op", "new"): Action.RENAME,
        ("op", "price"): Action.MIGRATE,
        ("op", "more"): Action.ADD,
        ("op", "gone"): Action.DROP,
    }
    assert not found.refusals
    assert set(found.moves["op"]) == {"old", "price"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (value("bigint"), rl.Value("int")),
        (value("string"), rl.Value("int")),
        (value("int"), rl.List("int")),
        (value("int"), rl.Value("int", ttl="1 day")),
        (value("int"), rl.Value("int", scope="group")),
        (value("int"), rl.List("string", migrate=str)),
        (Variable(kind="map", type="int", key="string"), rl.Map("int", "int")),
        (Variable(kind="map", type="int", key="int"), rl.Map("double", "int")),
    ],
)
def test_what_cannot_be_read_is_refused(before: Variable, after: StateSpec) -> None:
    found = plan({"op": stored(v=before)}, {"op": declared(v=after)})

    assert actions(found)["op", "v"] is Action.REFUSE
    with pytest.raises(StateSchemaError, match="v: "):
        found.check()


def test_keys_never_change() -> None:
    found = plan({"op": stored("k int")}, {"op": declared("k bigint")})

    with pytest.raises(StateSchemaError, match="keys k bigint"):
        found.check()


def test_orphaned_state_is_refused_by_name_until_told() -> None:
    before = {"op": stored(n=value("int")), "other": stored()}

    found = plan(before, {"other": declared()})
    told = plan(before, {"other": declared()}, retired=("op",))

    with pytest.raises(StateSchemaError, match=r"1 entries of state \(n\)") as caught:
        found.check()
    assert "flow.retired('op')" in caught.value.hint
    told.check()
    assert told.retired == {"op"}


def test_a_renamed_operator_keeps_its_state_and_may_be_told_again() -> None:
    after = {"new": declared(n=rl.Value("int"))}

    first = plan({"old": stored(n=value("int"))}, after, renamed={"old": "new"})
    again = plan({"new": stored(n=value("int"))}, after, renamed={"old": "new"})

    assert actions(first)["new", None] is Action.RENAME
    assert first.renamed == {"old": "new"}
    assert again.changes_nothing
    first.check()
    again.check()


def test_names_that_make_no_sense_are_refused() -> None:
    before = {"old": stored(), "new": stored()}

    with pytest.raises(InvalidConfigError, match="an operator with uid 'newer'"):
        plan(before, {"new": declared()}, renamed={"old": "newer"})
    with pytest.raises(InvalidConfigError, match="no operator 'new' in the store"):
        plan(before, {"new": declared()}, renamed={"old": "new"})
    with pytest.raises(InvalidConfigError, match="no operator 'old' in the code"):
        plan({"old": stored()}, {"new": declared(), "old": declared()}, {"old": "new"})


@pytest.mark.parametrize(
    ("old", "new", "is_so"),
    [
        ("tinyint", "bigint", True),
        ("smallint", "float", True),
        ("int", "float", False),
        ("int", "double", True),
        ("bigint", "double", False),
        ("float", "double", True),
        ("double", "float", False),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(10,4)", False),
        ("date", "timestamp", False),
        ("array<int>", "array<bigint>", True),
        ("map<string,int>", "map<string,bigint>", True),
        ("map<int,int>", "map<bigint,int>", False),
        ("struct<a:int,b:string>", "struct<a:bigint,b:string>", True),
        ("struct<a:int>", "struct<a:int,b:string>", False),
        ("struct<a:int>", "struct<b:int>", False),
    ],
)
def test_wider_types_hold_all_values(old: str, new: str, *, is_so: bool) -> None:
    assert is_wider(type_of(new), type_of(old)) is is_so


@pytest.mark.parametrize(
    ("old", "new", "value", "wide"),
    [
        ("int", "bigint", 3, 2**40),
        ("float", "double", 0.5, 0.1),
        ("int", "double", 3, 0.5),
        ("decimal(10,2)", "decimal(12,4)", Decimal("1.25"), Decimal("1.2525")),
        ("array<int>", "array<bigint>", [1], [2**40]),
        ("map<string,int>", "map<string,bigint>", {"a": 1}, {"a": 2**40}),
    ],
)
def test_files_of_narrow_and_wide_values_are_read_and_merged(
    old: str, new: str, value: Any, wide: Any
) -> None:
    layout = declared(v=rl.Value(new)).layout
    narrow = _row(b"a", old, value)

    alone = changes_of(narrow, layout)
    both = changes_of(merge_tables([narrow, _row(b"b", new, wide)]), layout)

    decode = layout.rows["key"].decode
    assert decode(alone.puts[b"a"]) == (value,)
    assert type(decode(alone.puts[b"a"])[0]) is type(wide)
    assert [decode(both.puts[i]) for i in (b"a", b"b")] == [(value,), (wide,)]


def _row(entry_id: bytes, kind: str, value: Any) -> pa.Table:
    schema = declared(v=rl.Value(kind)).layout.arrow
    pairs = list(value.items()) if isinstance(value, dict) else value
    row = {"id": entry_id, "entry": "values", "key_group": 0, "key": {"k": "x"}}
    return pa.Table.from_pylist(
        [{**row, "deleted": False, "data": {"v": pairs}}], schema=schema
    )


def test_values_that_were_set_win_over_the_code() -> None:
    def number(default: Any, value: Any = None, kind: str = "int") -> Parameter:
        since = None if value is None else 4
        return Parameter(type=kind, default=default, value=value, since=since)

    before = {
        "kept": number(1, 2),
        "unset": number(1),
        "gone": number(1, 3),
        "wider": number(1, 2),
        "other": number(1, 2),
    }
    after = {
        "kept": number(7),
        "unset": number(7),
        "fresh": number(7),
        "wider": number(0.5, kind="float"),
        "other": number("x", kind="str"),
    }
    state = msgspec.structs.replace(stored(), parameters=before)

    upgrade = plan({"op": state}, {"op": replace(declared(), parameters=after)})

    details = {s.variable: (s.action, s.detail) for s in upgrade.steps}
    set_before = "parameter, 2, set in epoch 4; the code says"
    assert details["kept"] == (Action.KEEP, f"{set_before} 7")
    assert details["wider"] == (Action.KEEP, f"{set_before} 0.5")
    assert details["unset"] == (Action.KEEP, "parameter, 7 as the code says")
    assert details["fresh"] == (Action.ADD, "parameter, 7 as the code says")
    assert details["gone"] == (Action.DROP, "parameter of kind int; 3 is forgotten")
    assert details["other"][0] is Action.REFUSE
    (refusal,) = upgrade.refusals
    assert "riverlock set STORE op.other --default" in refusal.hint
