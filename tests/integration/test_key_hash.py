"""Spark places keys by its own hash; ours must be the same function."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from riverlock.core.types import Schema, schema_of
from riverlock.state.columns.key_hashes import key_groups_of
from riverlock.state.keys import key_group, xxhash64
from riverlock.state.layout import StateLayout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
GROUPS = 128
WIDE = Context(prec=80)
SCHEMA = schema_of(
    "a boolean, b byte, c short, d int, e long, f float, g double, h string,"
    " i binary, j date, k timestamp, l timestamp_ntz, m decimal(9,2),"
    " n decimal(18,0), o decimal(38,18), p decimal(38,0)"
)
EDGES: dict[str, list[Any]] = {
    "a": [True, False],
    "b": [-128, 127, 0],
    "c": [-(1 << 15), (1 << 15) - 1],
    "d": [-(1 << 31), (1 << 31) - 1, -1],
    "e": [-(1 << 63), (1 << 63) - 1, -1],
    "f": [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5],
    "g": [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324],
    "h": ["", "a", "ü", "🎉" * 20, "x" * 31, "x" * 32, "x" * 33, "y" * 1000, "\x00"],
    "i": [b"", b"\x00", b"\xff" * 7, bytes(range(256))],
    "j": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    "k": [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
    "l": [datetime(1969, 12, 31), datetime(2024, 2, 29, 1, 2, 3, 4)],  # noqa: DTZ001
    "m": [Decimal("0.00"), Decimal("-9999999.99"), Decimal("1.10")],
    "n": [Decimal(10**18 - 1), Decimal(-(10**18 - 1)), Decimal(0)],
    "o": [Decimal("-0.000000000000000001"), Decimal(0), Decimal("9" * 20)],
    "p": [Decimal(10**38 - 1), Decimal(-(10**38) + 1), Decimal(-128), Decimal(127)]
    + [Decimal(s * (1 << b)) for b in (7, 8, 63, 64, 120) for s in (1, -1)],
}


def random_value(  # noqa: C901 - a table of types
    kind: str, name: str, chance: random.Random
) -> Any:
    if chance.random() < 0.4:
        return chance.choice([None, *EDGES[name]])
    match kind:
        case "boolean":
            return chance.random() < 0.5
        case "byte" | "short" | "int" | "long":
            bits = {"byte": 8, "short": 16, "int": 32, "long": 64}[kind]
            return chance.getrandbits(bits) - (1 << (bits - 1))
        case "float":
            return float(chance.randint(-(1 << 20), 1 << 20)) / 8
        case "double":
            return chance.gauss(0, 1e10)
        case "string":
            letters = "abcäöü中文🎉 \t"
            return "".join(chance.choices(letters, k=chance.randint(0, 70)))
        case "binary":
            return chance.randbytes(chance.randint(0, 70))
        case "date":
            return date(1970, 1, 1) + timedelta(days=chance.randint(-90_000, 90_000))
        case "timestamp":
            us = chance.randint(-(10**15), 10**16)
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
        case "timestamp_ntz":
            us = chance.randint(-(10**15), 10**16)
            return datetime(1970, 1, 1) + timedelta(microseconds=us)  # noqa: DTZ001
        case _:
            kind_of = SCHEMA[name]
            limit = 10 ** chance.randint(1, kind_of.precision) - 1
            number = chance.randint(-limit, limit)
            return Decimal(number).scaleb(-kind_of.scale, context=WIDE)


def test_key_group_is_what_spark_computes(spark: SparkSession) -> None:
    chance = random.Random(20240101)
    rows = [
        tuple(random_value(f.type.kind, f.name, chance) for f in SCHEMA.fields)
        for _ in range(400)
    ]
    columns = [
        pa.array(list(c), f.type.to_arrow())
        for c, f in zip(zip(*rows, strict=True), SCHEMA.fields, strict=True)
    ]
    frame = spark.createDataFrame(pa.table(columns, schema=SCHEMA.to_arrow()))
    names = SCHEMA.names
    every = ", ".join(names)
    hashes = [f"xxhash64({n}) as {n}" for n in names]
    found = frame.selectExpr(
        *hashes,
        f"xxhash64({every}) as every",
        f"pmod(xxhash64({every}), {GROUPS}) as key_group",
    ).collect()

    whole_table = pa.table(columns, schema=SCHEMA.to_arrow())
    groups = key_groups_of(whole_table, SCHEMA, GROUPS).tolist()
    assert groups == [theirs["key_group"] for theirs in found]
    for row, theirs in zip(rows, found, strict=True):
        for f, value in zip(SCHEMA.fields, row, strict=True):
            schema = Schema((f,))
            key = StateLayout(schema, {}).key_of((value,))
            assert xxhash64(key, schema) == theirs[f.name], (f.type.ddl, value)
        whole = StateLayout(SCHEMA, {}).key_of(row)
        assert xxhash64(whole, SCHEMA) == theirs["every"], row
        assert key_group(whole, SCHEMA, GROUPS) == theirs["key_group"]
