"""A driver that slept around its commit wakes up when another has taken over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.chaos import kafka_copy, numbers
from tests.chaos.children import DEADLINE_SECONDS, ROOT
from tests.chaos.views import rows_of_redis
from tests.databases.places import mariadb_place, postgres_place
from tests.servers.kafka import Topic, all_records, send
from tests.servers.redis import redis_server
from tools.kafka_server import KafkaServer

from riverlock.core import faults

pytestmark = pytest.mark.chaos


@contextmanager
def asleep(module: str, *arguments: str, fault: str = "") -> Iterator[None]:
    """Start a driver that stops itself; wake it at the end, and see it fenced."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **({faults.PLAN_VARIABLE: fault} if fault else {})},
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            _, status = os.waitpid(driver.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), "it ended, and should have stopped itself"
            yield
            driver.send_signal(signal.SIGCONT)
            _, words = driver.communicate(timeout=DEADLINE_SECONDS)
        finally:
            driver.kill()
    assert driver.returncode == 1, words
    assert "FencedError" in words.splitlines()[-1], words


# Before the first of two sinks commits the second epoch, and between the two.
FAULTS = ["P8=stop@2", "P9=stop@3"]
LIMIT = 6 * numbers.EPOCH_ROWS


@pytest.mark.parametrize(
    ("name", "fault"),
    [("postgres", FAULTS[0]), ("postgres", FAULTS[1]), ("mariadb", FAULTS[1])],
)
def test_of_databases(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, fault: str
) -> None:
    server = request.getfixturevalue(name)
    place = postgres_place(server) if name == "postgres" else mariadb_place(server)
    store = tmp_path / "store"
    where = (str(store), place.url, str(place.schema), str(LIMIT))

    with asleep("tests.chaos.numbers", *where, fault=fault):
        numbers.run(store, numbers.sinks_of(place.url, place.schema), limit=LIMIT)

    rows, sums = place.snapshot(
        "SELECT n, epoch FROM {}numbers ORDER BY n", "SELECT k, total FROM {}totals"
    )
    rows_of_epoch = numbers.EPOCH_ROWS
    assert [tuple(r) for r in rows] == [(n, n // rows_of_epoch) for n in range(LIMIT)]
    assert dict(sums) == numbers.totals(LIMIT)
    assert place.tables() == {"numbers", "totals", "riverlock_epochs"}


@pytest.mark.parametrize("fault", FAULTS)
def test_of_redis(tmp_path: Path, fault: str) -> None:
    store = tmp_path / "store"
    with redis_server(tmp_path) as url:
        with asleep(
            "tests.chaos.numbers", str(store), url, "shop", str(LIMIT), fault=fault
        ):
            numbers.run(store, numbers.redis_sinks(url, "shop"), limit=LIMIT)
        rows, sums = rows_of_redis(url, "shop")

    found = sorted((r["n"], r["epoch"]) for r in rows)
    assert found == [(n, n // numbers.EPOCH_ROWS) for n in range(LIMIT)]
    assert {k: total for k, total, _ in sums} == numbers.totals(LIMIT)


def test_of_kafka(kafka: KafkaServer, topic: Topic, tmp_path: Path) -> None:
    """Its transaction is open, and its rows are in the log."""
    plan = kafka_copy.Copy(
        servers=kafka.servers,
        source=topic(1),
        target=topic(1),
        store=str(tmp_path / "store"),
    )
    send(kafka.servers, plan.source, [(b"k", b"%d" % n) for n in range(60)])

    with asleep("tests.chaos.kafka_copy", json.dumps(asdict(plan)), "SIGSTOP"):
        kafka_copy.run(plan)

    found = [m.value() for m in all_records(kafka.servers, plan.target)]
    assert found == [b"%d" % n for n in range(60)]
