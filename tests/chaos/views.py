"""What readers see of the flow of numbers, in each system."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import redis
from tests.chaos import numbers
from tests.databases.places import Place

Epochs = list[tuple[int, int]]  # each with how many numbers it has
Sums = list[tuple[int, int, int]]  # key, total, and the epoch that wrote it
View = Callable[[], tuple[Epochs, Sums]]

_EPOCHS = "SELECT epoch, COUNT(*) FROM {}numbers GROUP BY epoch ORDER BY epoch"
_SUMS = "SELECT k, total, epoch FROM {}totals"


def view_of_tables(place: Place) -> View:
    """Return what shows both tables at one moment."""

    def look() -> tuple[Epochs, Sums]:
        if not {"numbers", "totals"} <= place.tables():
            return [], []
        epochs, sums = place.snapshot(_EPOCHS, _SUMS)
        return [tuple(r) for r in epochs], [tuple(r) for r in sums]

    return look


def epochs_of_table(place: Place) -> Epochs:
    """Return the epochs of a table that is alone in its database."""
    if "numbers" not in place.tables():
        return []
    return [tuple(r) for r in place.snapshot(_EPOCHS)[0]]


def sums_of_table(place: Place) -> Sums:
    """Return the sums of a table that is alone in its database."""
    if "totals" not in place.tables():
        return []
    return [tuple(r) for r in place.snapshot(_SUMS)[0]]


def rows_of_redis(url: str, prefix: str) -> tuple[list[dict[str, Any]], Sums]:
    """Return the rows of the stream and the sums, as of one moment."""
    with redis.Redis.from_url(url, decode_responses=True) as server:
        pipe = server.pipeline(transaction=True)
        pipe.xrange(f"{prefix}:numbers")
        for key in range(numbers.KEYS):
            pipe.hgetall(f"{prefix}:total:{key}")
        stream, *found = pipe.execute()
    rows = [json.loads(row["row"]) for _, row in stream]
    sums = [(int(h["k"]), int(h["total"]), int(h["epoch"])) for h in found if h]
    return rows, sums


def view_of_redis(url: str, prefix: str) -> View:
    """Return what shows the stream and the hashes at one moment."""

    def look() -> tuple[Epochs, Sums]:
        rows, sums = rows_of_redis(url, prefix)
        return sorted(Counter(r["epoch"] for r in rows).items()), sums

    return look


class KafkaView:
    """Reads on in a topic of one partition, as far as it is committed."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "log_level": 2,
                "group.id": "view",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._is_at_end = False
        self.rows: list[dict[str, Any]] = []

    def epochs(self) -> Epochs:
        """Read until there is nothing more, and return the epochs so far."""
        while found := self._consumer.consume(1000, timeout=0.05) or self._unread():
            for message in found:
                self._is_at_end = message.error() is not None
                if not self._is_at_end:
                    self.rows.append(json.loads(message.value() or b""))
        return sorted(Counter(r["epoch"] for r in self.rows).items())

    def _unread(self) -> list[Any]:
        """Wait for more, unless the client said that there is none."""
        return [] if self._is_at_end else self._consumer.consume(1, timeout=60)

    def close(self) -> None:
        self._consumer.close()
