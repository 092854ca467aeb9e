"""State as relations: types, keys, epochs, and the libraries that read them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.cli.stores import make_store

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, SnapshotNotFoundError
from riverlock.core.types import schema_of
from riverlock.query.keys.key_spans import place_of
from riverlock.query.nesting import nested
from riverlock.query.opened_store import Store
from riverlock.snapshot.format.records import OperatorState, Variable
from riverlock.state.layout import arrow_schema

ANN = {
    "user": "ann",
    "recent": [3.0, 4.5],
    "seen": {"tea": 1, "cocoa": 1},
    "spent": 7.5,
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("query") / "store"
    make_store(root).pin("v1", epoch=1, now_us=7, note="before")
    return rl.open(root)


def test_store_lists_epochs_names_and_operators(shop: Store) -> None:
    (named,) = shop.snapshots()

    assert shop.flow == "shop"
    assert shop.epochs() == [0, 1, 2]
    assert (named.name, named.epoch, named.note) == ("v1", 1, "before")
    assert shop.at("v1").epoch == 1
    assert shop.at().operators["velocity"] == ("recent", "seen", "spent")


def test_operator_has_a_row_per_key(shop: Store) -> None:
    found = shop.state("velocity", at="v1")

    assert found.columns == ("user", "recent", "seen", "spent")
    assert sorted(found, key=lambda r: str(r["user"]))[0] == ANN
    assert {r["user"] for r in found} == {"ann", "ben"}
    assert {r["user"] for r in shop.state("velocity")} == {"ann", "ben", "cleo", None}


def test_variable_has_a_row_per_entry(shop: Store) -> None:
    recent = shop.state("velocity", "recent").get("ann")
    seen = shop.state("velocity", "seen").get("ann")

    assert [(r["user"], r["value"]) for r in recent] == [("ann", 3.0), ("ann", 4.5)]
    assert {r["key"]: r["value"] for r in seen} == ANN["seen"]
    assert shop.state("velocity", "spent").get("ann") == [{"user": "ann", "spent": 7.5}]


def test_timers_are_rows(shop: Store) -> None:
    (timer,) = shop.timers("velocity").get("ben")

    assert timer["kind"] == "processing"
    assert timer["at"] == datetime(2024, 1, 1, 0, 10, tzinfo=UTC)


def test_columns_are_typed_also_without_rows(shop: Store) -> None:
    seen = shop.state("velocity", "seen").only("nobody").to_arrow()
    whole = shop.state("velocity").only("nobody").to_arrow()

    assert seen.num_rows == whole.num_rows == 0
    assert seen.schema.types == [pa.string(), pa.string(), pa.int64()]
    assert whole.schema.field("spent").type == pa.float64()
    assert pa.types.is_map(whole.schema.field("seen").type)


@pytest.mark.parametrize(
    "key", [("x", 1), ["x", 1], {"b": 1, "a": "x"}], ids=["tuple", "list", "mapping"]
)
def test_keys_of_several_columns(shop: Store, key: Any) -> None:
    assert shop.state("pairs").get(key) == [{"a": "x", "b": 1, "n": 2}]


@pytest.mark.parametrize(
    "key", ["x", ("x", "one"), ("x", 1, 2), {"a": "x"}, {"a": "x", "c": 1}]
)
def test_what_is_no_key_is_refused(shop: Store, key: Any) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        shop.state("pairs").get(key)

    assert "a string, b int" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "meant"), [(("velocty",), "velocity"), (("velocity", "spend"), "spent")]
)
def test_unknown_names_are_refused(
    shop: Store, names: tuple[str, ...], meant: str
) -> None:
    with pytest.raises(SnapshotNotFoundError, match=f"did you mean '{meant}'"):
        shop.state(*names)


def test_other_libraries_read_the_same(shop: Store) -> None:
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    spent = shop.state("velocity", "spent")
    expected = {"ann": 7.5, "ben": 5.0, "cleo": 2.0, None: 1.0}

    frame = spent.to_pandas()
    assert dict(zip(frame["user"], frame["spent"], strict=True)) == expected
    rows = spent.to_polars()
    assert isinstance(rows, polars.DataFrame)
    assert dict(rows.iter_rows()) == expected
    with duckdb.connect() as connection:
        relation = spent.to_duckdb(connection)
        assert dict(relation.fetchall()) == expected
        assert relation.aggregate("sum(spent)").fetchall() == [(15.5,)]


KEYED = [
    ("k boolean", True),
    ("k double", math.nan),
    ("k double", -0.0),
    ("k binary", b"\x00\xff"),
    ("k date", date(2026, 1, 1)),
    ("k timestamp", datetime(2026, 1, 1, tzinfo=UTC)),
    ("k decimal(10,2)", Decimal("12.5")),
    ("k string", "x" * 300),
]


@pytest.mark.parametrize(("keys", "key"), KEYED, ids=[k for k, _ in KEYED])
def test_place_of_a_key_is_that_of_its_entries(keys: str, key: Any) -> None:
    class Counter(rl.Process):
        n = rl.Value("long", default=0)

        def on_event(self, row: Any, ctx: rl.Context) -> None:
            self.n += 1

    ran = rl.testing.harness(Counter(), key="k", input=keys)
    ran.send((key,))
    (written,) = (t["id"].to_pylist() for t in ran._tables())
    state = OperatorState(keys=keys, variables={})

    span = place_of(key, state, ran._key_groups).span

    assert span.first <= written[0] < (span.end or b"")


def test_keys_that_differ_only_in_null_or_nan_have_rows_of_their_own() -> None:
    variables = {
        "n": Variable(kind="value", type="bigint"),
        "tail": Variable(kind="list", type="bigint"),
    }
    schema = arrow_schema(schema_of("a double, b string"), variables)
    keys = [(math.nan, None), (math.nan, "x"), (None, "x"), (1.0, "x"), (1.0, None)]
    rows: list[dict[str, Any]] = []
    for n, (a, b) in enumerate(keys):
        values = {"entry": "values", "data": {"n": n, "tail": None}}
        element = {"n": None, "tail": {"index": 0, "value": 10 + n}}
        tail = {"entry": "list", "variable": "tail", "data": element}
        rows += [{**e, "key": {"a": a, "b": b}} for e in (values, tail)]

    found = nested(pa.Table.from_pylist(rows, schema=schema), variables)

    assert found["n"].to_pylist() == [0, 1, 2, 3, 4]
    assert found["tail"].to_pylist() == [[10], [11], [12], [13], [14]]
