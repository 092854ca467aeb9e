"""Kills the flow right before it commits an epoch, then checks that nobody could tell.

    make orders          or    python -m examples.kafka_orders.demo

Starts a Kafka broker and PostgreSQL, sends orders, and runs the flow twice in processes
of its own. What readers of Kafka and of the table see then equals a sum over all
orders.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.servers.postgres import Postgres
from tools.kafka_server import running, why_not

from examples.kafka_orders.flow import ORDERS, TOTALS

Row = tuple[str, int, int]
PARTITIONS = 3


def fill(servers: str, orders: list[tuple[str, int]]) -> None:
    topics = [NewTopic(name, PARTITIONS, 1) for name in (ORDERS, TOTALS)]
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    for made in admin.create_topics(topics).values():
        made.result(60)
    # Idempotence also keeps the order, if something has to be sent again.
    settings = {"enable.idempotence": True, "log_level": 2}
    producer = Producer({"bootstrap.servers": servers, **settings})
    for user, cents in orders:
        producer.produce(ORDERS, json.dumps({"user": user, "cents": cents}), user)
    producer.flush(60)


def truth(orders: list[tuple[str, int]]) -> Counter[Row]:
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    found: Counter[Row] = Counter()
    for user, cents in orders:
        counts[user] += 1
        sums[user] += cents
        found[user, counts[user], sums[user]] += 1
    return found


def run(servers: str, database: str, root: Path, *, faults: str = "") -> int:
    """Run the flow over what is there; returns how it ended."""
    code = (
        "import sys; from examples.kafka_orders.flow import build;"
        "build(sys.argv[1], sys.argv[2]).run(sys.argv[3], available_now=True,"
        " epoch_target=None, max_rows_per_epoch=2000)"
    )
    command = [sys.executable, "-c", code, servers, database]
    environment = {**os.environ, "RIVERLOCK_FAULTS": faults}
    done = subprocess.run(
        [*command, str(root / "store")],
        env=environment,
        check=False,
        stderr=subprocess.PIPE if faults else None,
    )
    return done.returncode


def in_kafka(servers: str) -> Counter[Row]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "demo",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(TOTALS, n, 0) for n in range(PARTITIONS)])
    found: Counter[Row] = Counter()
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(1000, timeout=0.1):
            error = message.error()
            if error is None:
                row = json.loads(message.value())
                found[row["user"], row["orders"], row["cents"]] += 1
            else:
                ended += error.code() == KafkaError._PARTITION_EOF
    consumer.close()
    return found


def newest(rows: Counter[Row]) -> Counter[Row]:
    """Of each user the row with the most orders: what a table by user has."""
    last: dict[str, Row] = {}
    for row in rows:
        last[row[0]] = max(row, last.get(row[0], row))
    return Counter(last.values())


@contextmanager
def database() -> Iterator[Postgres]:
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.close()


def main() -> None:
    reason = why_not()
    if reason is not None:
        sys.exit(f"no Kafka broker: {reason}")
    chance = random.Random(3)
    orders = [
        (f"user-{chance.randrange(50)}", chance.randrange(10_000))
        for _ in range(10_000)
    ]
    with (
        tempfile.TemporaryDirectory() as place,
        running(Path(place, "kafka")) as kafka,
        database() as tables,
    ):
        root, url = Path(place), tables.url()
        fill(kafka.servers, orders)
        print(f"{len(orders):,} orders are in Kafka at {kafka.servers}")
        first = run(kafka.servers, url, root, faults="P8=kill@2")
        print(f"the flow was killed (exit code {first}): an epoch was decided, and")
        print("neither Kafka nor PostgreSQL had it yet")
        second = run(kafka.servers, url, root)
        print(f"the next run completed it and went on (exit code {second})")
        expected = truth(orders)
        table = tables.query('SELECT "user", orders, cents FROM totals')
        places = {
            "Kafka": (in_kafka(kafka.servers), expected),
            "PostgreSQL": (Counter(table), newest(expected)),
        }
    for name, (found, wanted) in places.items():
        word = "equals" if found == wanted else "DIFFERS FROM"
        print(f"what is in {name} {word} the truth: {found.total():,} rows")
    if any(found != wanted for found, wanted in places.values()) or second:
        sys.exit(1)


if __name__ == "__main__":
    main()
