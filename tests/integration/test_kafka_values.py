"""Values of Kafka by schemas of a registry, on Spark."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.servers.kafka import Topic, send
from tests.servers.registry import PASSWORD, schema_registry
from tools.kafka_server import KafkaServer

import riverlock as rl
from riverlock.core.errors import SourceError

fastavro = pytest.importorskip("fastavro")
pytestmark = pytest.mark.spark
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "user", "type": "string"}, {"name": "cents", "type": "long"}],
}


def value(user: str, cents: int) -> bytes:
    out = io.BytesIO()
    row = {"user": user, "cents": cents}
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), row)
    return b"\0\0\0\0\x07" + out.getvalue()


def test_avro_goes_into_columns_and_bad_values_aside(
    spark: SparkSession, kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    name, good, bad = topic(), rl.sinks.memory(), rl.sinks.memory()
    values = [value("é", 1), b"nonsense", value("b", 2), None]
    send(kafka.servers, name, [(b"k", v) for v in values])
    store = str(tmp_path / "store")

    def read(flow: rl.Flow, url: str, **more: Any) -> Any:
        source = rl.sources.kafka(
            kafka.servers,
            name,
            value="avro",
            schema="user string, cents bigint",
            schema_registry=url,
            **more,
        )
        return flow.read(source, uid="in")

    with schema_registry() as registry:
        registry.add(7, json.dumps(SCHEMA))
        flow = rl.Flow("orders")
        orders = read(flow, registry.url)
        orders.select("offset", "user", "cents").write(good, uid="good")
        orders.bad.select("offset", "record").write(bad, uid="bad")
        flow.run(store, spark=spark, available_now=True)

        strict = rl.Flow("strict")
        orders = read(strict, registry.url, bad_rows="fail")
        orders.write(rl.sinks.memory(), uid="out")
        with pytest.raises(SourceError, match="at offset 1 is bad: it does not begin"):
            strict.run(str(tmp_path / "strict"), spark=spark, available_now=True)

    assert sorted(good.rows()) == [(0, "é", 1), (2, "b", 2), (3, None, None)]
    assert bad.rows() == [(1, b"nonsense")]
    stored = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert not [p for p in stored if PASSWORD.encode() in p.read_bytes()]
