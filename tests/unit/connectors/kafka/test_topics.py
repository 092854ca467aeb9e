"""What is said of topics, by what a cluster answers; no cluster is needed."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from riverlock.connectors.kafka.connection import connection_to
from riverlock.connectors.kafka.topics import Topics
from riverlock.core.errors import SourceError, SourceUnavailableError


class NoTopics:
    """A cluster that answers, and has no topic."""

    def describe_topics(self, names: Any, **_: Any) -> dict[str, Any]:
        return {"orders": self}

    def result(self, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    def poll(self, timeout: float) -> None:
        pass


def topics(*, waits: bool) -> Topics:
    connection = connection_to("127.0.0.1:9", {}, fixed=())
    found = Topics(connection, ("orders",), "in", "read_committed", waits=waits)
    found._admin = NoTopics()
    return found


def test_a_topic_that_is_not_there_is_an_error() -> None:
    with pytest.raises(SourceError) as caught:
        topics(waits=False).layout()

    assert not isinstance(caught.value, SourceUnavailableError)
    assert "orders does not exist" in caught.value.message
    assert "missing='wait'" in caught.value.hint


def test_a_topic_that_is_not_there_is_waited_for_if_asked() -> None:
    with pytest.raises(SourceUnavailableError) as caught:
        topics(waits=True).layout()

    assert "orders does not exist" in caught.value.message
