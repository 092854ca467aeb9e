"""The Kafka sink keeps the promises of every sink."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.servers.kafka import Topic, all_records
from tools.kafka_server import KafkaServer

import riverlock as rl
from riverlock.testing import SinkConformance


class TestKafkaSink(SinkConformance):
    """Rows of JSON in one partition, read by a bare consumer.

    A reader of several partitions sees a transaction in each of them, not at once.
    """

    secret = "hush-hush"
    steps = 15

    @pytest.fixture(autouse=True)
    def _broker(self, kafka: KafkaServer, topic: Topic) -> None:
        self.servers, self.new_topic = kafka.servers, topic

    def make_sink(self, folder: Path) -> Any:
        return rl.sinks.kafka(
            self.servers,
            self.new_topic(1),
            key="id",
            options={"sasl.password": self.secret},
        )

    def read_rows(self, sink: Any) -> Iterable[tuple[Any, ...]]:
        found = [json.loads(m.value()) for m in all_records(self.servers, sink.topic)]
        return [(row["id"], row["name"], row["epoch"]) for row in found]
