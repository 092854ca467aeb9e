"""Orders from Kafka, totals of each user to Kafka and to a table, each exactly once.

    KAFKA_SERVERS=localhost:9092 DATABASE=postgresql://me@localhost/shop \
        riverlock run examples/kafka_orders/flow.py --store s

``make orders`` runs it with a broker and a PostgreSQL of its own, kills it, and checks
the result.
"""

import os
from collections.abc import Iterator
from typing import Any

import riverlock as rl

ORDERS, TOTALS = "orders", "totals"


class Totals(rl.Process):
    """After each order: how many a user has made, and for how much."""

    output = "user string, orders bigint, cents bigint"
    orders = rl.Value("long", default=0)
    cents = rl.Value("long", default=0)

    def on_event(self, order: Any, ctx: rl.Context) -> Iterator[tuple[Any, ...]]:
        self.orders += 1
        self.cents += order.cents
        yield order.user, self.orders, self.cents


def build(servers: str, database: str) -> rl.Flow:
    flow = rl.Flow("orders")
    source = rl.sources.kafka(
        servers, ORDERS, value="json", schema="user string, cents bigint"
    )
    orders = flow.read(source, uid="orders")
    orders = orders.event_time("timestamp", delay="5 seconds", per="partition")
    totals = orders.key_by("user").process(Totals(), uid="totals")
    # Both sinks get the same epochs, or none of them does.
    totals.write(rl.sinks.kafka(servers, TOTALS, key="user"), uid="to_kafka")
    table = rl.sinks.sql(database, table=TOTALS, how="upsert", key="user", create=True)
    totals.write(table, uid="to_table")
    return flow


flow = build(
    os.environ.get("KAFKA_SERVERS", "localhost:9092"),
    os.environ.get("DATABASE", "sqlite:///totals.db"),
)
