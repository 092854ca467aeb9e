"""Values by schemas of a registry: what a task makes of their bytes."""

from __future__ import annotations

import base64
import io
import json
import pickle
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from tests.servers.registry import PASSWORD, SchemaRegistry, schema_registry

import riverlock as rl
from riverlock.connectors.kafka.values import schema_decoding
from riverlock.connectors.kafka.values.registry import registry_at
from riverlock.connectors.kafka.values.schema_decoding import Decoder
from riverlock.core.errors import (
    InvalidConfigError,
    SourceError,
    SourceUnavailableError,
)
from riverlock.core.types import schema_of

fastavro = pytest.importorskip("fastavro")
pb = pytest.importorskip("google.protobuf.descriptor_pb2")
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    monkeypatch.setattr(schema_decoding, "_KNOWN", {})
    monkeypatch.setattr(schema_decoding, "_WAITED_FOR", set())
    # Not time.sleep itself, which other threads use.
    monkeypatch.setattr(schema_decoding, "time", SimpleNamespace(sleep=lambda _: None))
    with schema_registry() as server:
        yield server


def decoder(registry: SchemaRegistry, form: str, columns: str) -> Decoder:
    made = Decoder(
        format=form,
        registry=registry_at(registry.url),
        schema=schema_of(columns),
        source="in",
    )
    travelled: Decoder = pickle.loads(pickle.dumps(made))
    return travelled


def avro(number: int, schema: Any, row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": t} for n, t in fields.items()],
    }


def test_avro_values_become_columns(registry: SchemaRegistry) -> None:
    schema = record(
        "Order",
        user=["null", "string"],
        cents="long",
        price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        at={"type": "long", "logicalType": "timestamp-micros"},
        ref={"type": "string", "logicalType": "uuid"},
        kind={"type": "enum", "name": "K", "symbols": ["A", "B"]},
        tags={"type": "map", "values": "int"},
        lines={"type": "array", "items": record("Line", n="int", odd="string")},
    )
    registry.add(7, json.dumps(schema))
    ref = uuid.UUID(int=5)
    row = {
        "user": "é",
        "cents": 5,
        "price": Decimal("1.25"),
        "at": AT,
        "ref": ref,
        "kind": "B",
        "tags": {"a": 1},
        "lines": [{"n": 1, "odd": "x"}],
    }
    mine = decoder(
        registry,
        "avro",
        "user string, cents bigint, price decimal(9,2), at timestamp, ref string,"
        " kind string, tags map<string,int>, lines array<struct<n:int>>, new double",
    )
    values = [avro(7, schema, row), None, avro(7, schema, {**row, "user": None})]

    found, wrong = mine.decoded([*values, *values])

    first = {**row, "ref": str(ref), "tags": [("a", 1)], "lines": [{"n": 1}]}
    expected = [{**first, "new": None}, None, {**first, "user": None, "new": None}]
    assert found.to_pylist() == expected * 2
    assert wrong == [None] * 6
    assert registry.asked == ["/schemas/ids/7"], "a schema is asked for once"


def test_a_changed_schema_is_read_as_it_was_written(registry: SchemaRegistry) -> None:
    old, new = record("O", a="int"), record("O", b="string", a="long")
    registry.add(1, json.dumps(old))
    registry.add(2, json.dumps(new))
    mine = decoder(registry, "avro", "a bigint, b string")

    found, _ = mine.decoded([avro(1, old, {"a": 1}), avro(2, new, {"a": 2, "b": "x"})])

    assert found.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_avro_schemas_may_refer_to_others(registry: SchemaRegistry) -> None:
    inner, outer = record("Inner", n="int"), record("Outer", inner="Inner")
    registry.add(1, json.dumps(inner))
    reference = {"name": "Inner", "subject": "s1", "version": 1}
    registry.add(2, json.dumps(outer), references=[reference])
    whole = record("Outer", inner=inner)
    mine = decoder(registry, "avro", "inner struct<n:int>")

    found, _ = mine.decoded([avro(2, whole, {"inner": {"n": 3}})])

    assert found.to_pylist() == [{"inner": {"n": 3}}]
    assert registry.asked[1:] == ["/subjects/s1/versions/1?deleted=true"]


def test_bad_values_are_told_apart_from_good_ones(registry: SchemaRegistry) -> None:
    schema = record("O", a="long")
    registry.add(1, json.dumps(schema))
    registry.add(3, json.dumps("string"))
    registry.add(4, "syntax = 'proto3';", kind="PROTOBUF")
    registry.add(5, json.dumps({"type": "record"}))
    good = avro(1, schema, {"a": 1})
    cases = {
        b"": "does not begin",
        b'{"a": 1}': "does not begin",
        good[:5]: "no avro of schema 1",
        good + b"x": "bytes after its end",
        avro(1, schema, {"a": 2**40}): "does not fit",
        b"\0\0\0\0\x02" + good[5:]: "has no schema 2",
        b"\0\0\0\0\x03\x02x": "is no record",
        b"\0\0\0\0\x04" + good[5:]: "it is of PROTOBUF",
        b"\0\0\0\0\x05" + good[5:]: "cannot be used",
    }
    mine = decoder(registry, "avro", "a int")

    found, wrong = mine.decoded([good, *cases, good])

    rest = [None] * len(cases)
    assert found.to_pylist() == [{"a": 1}, *rest, {"a": 1}]
    assert wrong[0] is None
    assert wrong[-1] is None
    for said, expected in zip(wrong[1:-1], cases.values(), strict=True):
        assert said is not None
        assert expected in said
    known = [path for path in registry.asked if not path.endswith("/2")]
    assert len(known) == len(set(known)), "asked twice"


def test_a_schema_that_is_new_may_not_be_known_everywhere_yet(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, pauses = record("O", a="long"), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            registry.add(1, json.dumps(schema))

    monkeypatch.setattr(schema_decoding, "time", SimpleNamespace(sleep=sleep))
    values: list[bytes | None] = [avro(1, schema, {"a": 1}), b"\0\0\0\0\x02\x02"]

    found, wrong = decoder(registry, "avro", "a bigint").decoded(values)

    assert found.to_pylist() == [{"a": 1}, None]
    assert wrong == [None, "the registry has no schema 2"]
    assert 2 < sum(pauses) < 10, "how long it is waited for in a task"
    waited, asked = len(pauses), len(registry.asked)
    assert decoder(registry, "avro", "a bigint").decoded(values)[1] == wrong
    assert len(pauses) == waited, "it is waited for again"
    assert len(registry.asked) == asked + 1


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_plain_numbers_are_no_times(registry: SchemaRegistry, kind: str) -> None:
    schema = record("O", at="long")  # of whichever unit
    registry.add(1, json.dumps(schema))
    mine = decoder(registry, "avro", f"at {kind}")

    found, wrong = mine.decoded([avro(1, schema, {"at": 1767323045})])

    assert found.to_pylist() == [None]
    assert wrong == [f"it does not fit: a number in place of a {kind}"]


def proto_files() -> tuple[Any, Any]:
    """``common.proto`` with an enum and a message; ``orders.proto`` that uses it."""
    kinds = pb.FieldDescriptorProto
    common = pb.FileDescriptorProto(name="c", package="shop", syntax="proto3")
    enum = common.enum_type.add(name="Kind")
    enum.value.add(name="NONE", number=0)
    enum.value.add(name="GIFT", number=1)
    common.message_type.add(name="Line").field.add(
        name="n", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL
    )
    orders = pb.FileDescriptorProto(name="default", package="shop", syntax="proto3")
    orders.dependency.extend(["common.proto", "google/protobuf/timestamp.proto"])
    orders.message_type.add(name="Unused")
    order = orders.message_type.add(name="Outer").nested_type.add(name="Order")

    def add(name: str, kind: Any, of: str = "", *, many: bool = False) -> None:
        label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
        number = len(order.field) + 1
        more = {"type_name": of} if of else {}
        order.field.add(name=name, number=number, type=kind, label=label, **more)

    add("user", kinds.TYPE_STRING)
    add("cents", kinds.TYPE_INT64)
    add("kind", kinds.TYPE_ENUM, ".shop.Kind")
    add("lines", kinds.TYPE_MESSAGE, ".shop.Line", many=True)
    add("first", kinds.TYPE_MESSAGE, ".shop.Line")
    add("at", kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add("tags", kinds.TYPE_MESSAGE, ".shop.Outer.Order.TagsEntry", many=True)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(
            name=name, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL
        )
    return common, orders


def test_protobuf_values_become_columns(registry: SchemaRegistry) -> None:
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    common, orders = proto_files()
    for number, file in ((1, common), (2, orders)):
        text = base64.b64encode(file.SerializeToString()).decode()
        reference = {"name": "common.proto", "subject": "s1", "version": 1}
        more = [reference] if number == 2 else None
        registry.add(number, text, kind="PROTOBUF", references=more)
    pool = DescriptorPool()
    common.name = "common.proto"
    for serialized in (
        timestamp_pb2.DESCRIPTOR.serialized_pb,
        common.SerializeToString(),
        orders.SerializeToString(),
    ):
        pool.AddSerializedFile(serialized)
    order_class = GetMessageClass(pool.FindMessageTypeByName("shop.Outer.Order"))
    full = order_class(user="é", cents=7, kind=1, tags={"a": "b"})
    full.lines.add(n=1)
    full.lines.add(n=2)
    full.at.seconds, full.at.nanos = 1767323045, 678901999
    head = b"\0\0\0\0\x02\x04\x02\x00"  # schema 2, message 1 and therein 0
    mine = decoder(
        registry,
        "protobuf",
        "user string, cents bigint, kind string, lines array<struct<n:int>>,"
        " first struct<n:int>, at timestamp, tags map<string,string>",
    )

    found, wrong = mine.decoded(
        [
            head + full.SerializeToString(),
            head + order_class().SerializeToString(),
            head + b"\xff\xff",
            b"\0\0\0\0\x02\x04\x02\x09",
            b"\0\0\0\0\x02\xff",
            b"\0\0\0\0\x02\x00",  # the first message of the schema: none of our fields
        ]
    )

    nothing: dict[str, Any] = dict.fromkeys(found.type.names)
    assert found.to_pylist() == [
        {
            "user": "é",
            "cents": 7,
            "kind": "GIFT",
            "lines": [{"n": 1}, {"n": 2}],
            "first": None,
            "at": AT,
            "tags": [("a", "b")],
        },
        {**nothing, "user": "", "cents": 0, "kind": "NONE", "lines": [], "tags": []},
        None,
        None,
        None,
        nothing,
    ]
    assert [w is None for w in wrong] == [True, True, False, False, False, True]
    assert registry.asked[0] == "/schemas/ids/2?format=serialized"


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (503, None, SourceUnavailableError),
        (408, None, SourceUnavailableError),
        (403, None, SourceError),
        # A proxy answers for a registry that is away: it does not know schemas.
        (404, "<h1>default backend - 404</h1>", SourceUnavailableError),
        (404, '{"error_code": 404}', SourceUnavailableError),
        (200, "<h1>back soon</h1>", SourceUnavailableError),
        (200, "[]", SourceUnavailableError),
    ],
)
def test_a_registry_in_trouble_is_no_bad_value(
    registry: SchemaRegistry, status: int, body: str | None, error: type[Exception]
) -> None:
    registry.status, registry.body = status, body

    with pytest.raises(error) as caught:
        decoder(registry, "avro", "a int").decoded([b"\0\0\0\0\x01\x02"])

    assert f"127.0.0.1:{registry.port}" in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_registry_that_is_away_is_said_to_be_away() -> None:
    nowhere = SchemaRegistry(port=9)

    with pytest.raises(SourceUnavailableError) as caught:
        decoder(nowhere, "avro", "a int").decoded([b"\0\0\0\0\x01\x02"])

    assert PASSWORD not in str(caught.value)


def test_the_registry_and_its_password_are_not_shown() -> None:
    source = rl.sources.kafka(
        "h:1",
        "t",
        value="avro",
        schema="a int",
        schema_registry="https://me:s3cret@registry:8081/base/",
    )

    assert source.registry is not None
    assert source.registry.url == "https://registry:8081/base"
    assert "s3cret" not in repr(source)


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "avro", "schema": "a int"},
        {"value": "json", "schema": "a int", "schema_registry": "http://r"},
        {"value": "protobuf", "schema_registry": "http://r"},
        {"value": "avro", "schema": "a int", "schema_registry": "s3cret@r"},
        {"value": "avro", "schema": "a int", "schema_registry": "http://u:s3cret@r:x"},
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        rl.sources.kafka("h:1", "t", **wrong)

    assert "s3cret" not in str(caught.value)
