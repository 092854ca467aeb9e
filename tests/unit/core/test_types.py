from __future__ import annotations

import dataclasses
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from riverlock.core.errors import InvalidConfigError
from riverlock.core.types import Schema, schema_of, type_of


@dataclasses.dataclass
class Point:
    x: int
    y: float | None = None


@dataclasses.dataclass
class Trip:
    name: str
    points: list[Point]


@pytest.mark.parametrize(
    ("spec", "ddl"),
    [
        ("double", "double"),
        ("BIGINT", "bigint"),
        ("long", "bigint"),
        ("smallint", "smallint"),
        ("decimal", "decimal(10,0)"),
        ("decimal(38, 18)", "decimal(38,18)"),
        ("array<struct<a:int,b:map<string,array<date>>>>", None),
        ("struct<`odd name`:int,`back``tick`:string>", None),
        ("struct<a: int, b: string NOT NULL>", "struct<a:int,b:string>"),
        (bool, "boolean"),
        (int, "bigint"),
        (float, "double"),
        (str, "string"),
        (bytes, "binary"),
        (date, "date"),
        (datetime, "timestamp"),
        (Decimal, "decimal(38,18)"),
        (list[int], "array<bigint>"),
        (dict[str, list[float]], "map<string,array<double>>"),
        (int | None, "bigint"),
        (Point, "struct<x:bigint,y:double>"),
        (Trip, "struct<name:string,points:array<struct<x:bigint,y:double>>>"),
    ],
)
def test_type_of_prints_what_spark_parses(spec: Any, ddl: str | None) -> None:
    assert type_of(spec).ddl == (ddl or spec)


@pytest.mark.parametrize(
    "spec",
    [
        "text",
        "array<int",
        "map<string>",
        "decimal(39)",
        "decimal(5,6)",
        "decimal(x)",
        "int string",
        "",
        "a{b}",
        set,
        list,
        ["double"],
        int | str,
        object(),
    ],
)
def test_type_of_refuses_what_cannot_be_stored(spec: Any) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        type_of(spec)

    assert caught.value.code == "INVALID_CONFIG"


def test_type_of_takes_pyspark_types_and_their_classes() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    struct = types.StructType(
        [
            types.StructField("a", types.LongType()),
            types.StructField("b", types.ArrayType(types.DecimalType(12, 2))),
            types.StructField("c", types.MapType(types.StringType(), types.DateType())),
            types.StructField("d", types.TimestampNTZType()),
        ]
    )

    assert schema_of(struct).ddl == (
        "a bigint, b array<decimal(12,2)>, c map<string,date>, d timestamp_ntz"
    )
    assert type_of(types.DoubleType).ddl == "double"


def test_schema_of_names_columns_in_order() -> None:
    schema = schema_of("user string, amount double NOT NULL, `at time` timestamp")

    assert schema.names == ("user", "amount", "at time")
    assert schema["amount"].kind == "double"
    assert schema_of(schema.ddl) == schema
    with pytest.raises(KeyError):
        schema["other"]


@pytest.mark.parametrize(
    "spec",
    ["", "a int, a string", "a int,, b int", "a int b int", "a int,", "int", float],
)
def test_schema_of_refuses_what_are_no_columns(spec: Any) -> None:
    with pytest.raises(InvalidConfigError):
        schema_of(spec)


def test_schema_of_takes_dataclasses() -> None:
    assert schema_of(Point).ddl == "x bigint, y double"


def test_to_arrow_gives_what_spark_exchanges() -> None:
    schema = schema_of(
        "a byte, b timestamp, c timestamp_ntz, d decimal(20,3), e array<float>,"
        " f map<string,binary>, g struct<h:boolean>"
    )

    assert schema.to_arrow() == pa.schema(
        [
            ("a", pa.int8()),
            ("b", pa.timestamp("us", tz="UTC")),
            ("c", pa.timestamp("us")),
            ("d", pa.decimal128(20, 3)),
            ("e", pa.list_(pa.float32())),
            ("f", pa.map_(pa.string(), pa.binary())),
            ("g", pa.struct([("h", pa.bool_())])),
        ]
    )
    assert Schema(schema.fields) == schema
