"""Kafka to Kafka: whatever dies, and whenever, each record is there exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from tests.chaos import kafka_copy, kafka_flow
from tests.chaos.beside import Statuses
from tests.chaos.children import DEADLINE_SECONDS, ROOT
from tests.chaos.kafka_copy import Copy
from tests.servers.kafka import Topic, all_records, send, send_in_transactions
from tools.kafka_server import KafkaServer

from riverlock.connectors.base.committer import Committer
from riverlock.core import faults
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.format.run_status import Status

pytestmark = pytest.mark.chaos
# Beside what it takes the broker to start.
OUTAGE_SECONDS = float(os.environ.get("RIVERLOCK_OUTAGE_SECONDS", "0"))


def plan_of(kafka: KafkaServer, topic: Topic, folder: Path) -> Copy:
    return Copy(
        servers=kafka.servers,
        source=topic(2),
        target=topic(3),
        store=str(folder / "store"),
    )


def fill(plan: Copy, rows: int) -> None:
    """Send records in transactions, a few of which are aborted."""
    numbers = iter(range(rows))
    groups = [[next(numbers) for _ in range(20)] for _ in range(rows // 20)]
    send_in_transactions(
        plan.servers,
        plan.source,
        [
            (n % 7 != 3, [(b"k%d" % (i % 11), b"%d" % i) for i in group])
            for n, group in enumerate(groups)
        ],
    )


def records(servers: str, name: str) -> Counter[tuple[bytes, bytes, int]]:
    return Counter(
        (m.key(), m.value(), m.partition()) for m in all_records(servers, name)
    )


class Outage:
    """Takes the broker away right before an epoch is committed."""

    guarantee = ""

    def __init__(self, kafka: KafkaServer) -> None:
        self.kafka, self.began = kafka, threading.Event()

    def around(self, committer: Committer) -> Committer:
        self.committer, self.open = committer, committer.open
        return self

    def commit(self, epoch: int, output: SinkOutput) -> None:
        if epoch == 3 and not self.began.is_set():
            self.kafka.kill()
            self.began.set()
        self.committer.commit(epoch, output)


def test_a_broker_that_is_away_for_a_while_is_waited_for(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    plan = replace(plan_of(kafka, topic, tmp_path), attempts=20)
    fill(plan, 200)
    expected = records(plan.servers, plan.source)
    outage = Outage(kafka)

    with ThreadPoolExecutor(1) as beside:
        copying = beside.submit(kafka_copy.run, plan, around=outage.around)
        assert outage.began.wait(DEADLINE_SECONDS)
        time.sleep(OUTAGE_SECONDS)
        # Here, not beside: the broker ends with the thread that started it.
        kafka.start()
        copying.result(DEADLINE_SECONDS)

    assert records(plan.servers, plan.target) == expected


def is_after(epochs: range, status: Status) -> bool:
    return status.epoch not in epochs


def test_a_broker_that_restarts_does_not_end_a_flow_that_reads_it(
    kafka: KafkaServer, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to read when the broker goes, killed or in order."""
    monkeypatch.setattr("riverlock.connectors.kafka.topics.WAIT_SECONDS", 1.0)
    plan, statuses = replace(plan_of(kafka, topic, tmp_path), attempts=1), Statuses()
    fill(plan, 100)

    with ThreadPoolExecutor(1) as beside, ExitStack() as stack:
        driver = kafka_copy.bare(plan, on_status=statuses.add)._driver(stack)
        driver.planner = replace(driver.planner, stops_at_end=False)
        copying = beside.submit(driver.run)
        stack.callback(driver.stop)
        for leave in (kafka.kill, kafka.stop):
            statuses.wait_for_last(lambda s: s.lag_rows == {"in": 0})
            before = range((statuses.all[-1].epoch or 0) + 1)
            leave()
            try:
                statuses.wait_for_last(lambda s: s.state == "waiting")
            finally:
                kafka.start()
            statuses.wait_for_last(lambda s: s.state == "running")
            fill(plan, 100)
            statuses.wait_for_last(partial(is_after, before))
        driver.stop()
        copying.result(DEADLINE_SECONDS)

    kafka_copy.run(plan)  # what came after the last epoch
    assert records(plan.servers, plan.target) == records(plan.servers, plan.source)


@pytest.mark.spark
def test_a_flow_with_state_on_spark_that_is_killed_twice_equals_the_batch(
    kafka: KafkaServer, topic: Topic, spark: SparkSession, tmp_path: Path
) -> None:
    places = (str(tmp_path / "store"), kafka.servers, topic(2), topic(2))
    orders = [(f"u{n % 7}", n * n % 101) for n in range(300)]
    send(
        kafka.servers,
        places[2],
        [
            (user.encode(), json.dumps({"user": user, "amount": amount}).encode())
            for user, amount in orders
        ],
    )

    for fault in ("P8=kill@2", "P9=kill@2"):
        child = subprocess.run(
            [sys.executable, "-m", "tests.chaos.kafka_flow", *places],
            cwd=ROOT,
            env={**os.environ, faults.PLAN_VARIABLE: fault},
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert child.returncode == -signal.SIGKILL, child.stderr[-2000:]
    cloudpickle.register_pickle_by_value(kafka_flow)  # type: ignore[no-untyped-call]
    try:
        kafka_flow.run(*places, spark=spark)
    finally:
        cloudpickle.unregister_pickle_by_value(kafka_flow)  # type: ignore[no-untyped-call]

    found = [json.loads(m.value()) for m in all_records(kafka.servers, places[3])]
    assert Counter(tuple(row.values()) for row in found) == Counter(totals(orders))
    # Records of a key are in one partition, in the order of their making.
    for user in {user for user, _ in orders}:
        mine = [row["count"] for row in found if row["user"] == user]
        assert mine == sorted(mine)


def totals(orders: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """What a batch over all orders gives."""
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    found = []
    for user, amount in orders:
        counts[user] += 1
        sums[user] += amount
        found.append((user, counts[user], sums[user]))
    return found
