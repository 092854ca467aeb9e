"""Servers that are away for half a minute, and answers of theirs that are lost."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.chaos import numbers
from tests.chaos.beside import running
from tests.chaos.views import KafkaView, rows_of_redis
from tests.databases.places import Place, mariadb_place, postgres_place
from tests.servers.kafka import Topic
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres
from tests.servers.proxy import CuttingProxy, of_redis
from tests.servers.redis import redis_server
from tools.kafka_server import KafkaServer

pytestmark = pytest.mark.chaos

OUTAGE_SECONDS = 30


def numbered(end: int) -> list[tuple[int, str]]:
    return [(n, f"number {n}") for n in range(end)]


def assert_in_tables(place: Place, end: int) -> None:
    rows, sums = place.snapshot(
        "SELECT n, name FROM {}numbers ORDER BY n", "SELECT k, total FROM {}totals"
    )
    assert [tuple(r) for r in rows] == numbered(end)
    assert dict(sums) == numbers.totals(end)


def assert_in_redis(url: str, prefix: str, end: int) -> None:
    rows, sums = rows_of_redis(url, prefix)
    assert sorted((r["n"], r["name"]) for r in rows) == numbered(end)
    assert {k: total for k, total, _ in sums} == numbers.totals(end)


def assert_in_kafka(kafka: KafkaServer, name: str, end: int) -> None:
    with closing(KafkaView(kafka.servers, name)) as view:
        view.epochs()
    assert sorted((r["n"], r["name"]) for r in view.rows) == numbered(end)


def test_all_of_them_at_once_for_half_a_minute(
    postgres: Postgres,
    mariadb: Mariadb,
    kafka: KafkaServer,
    topic: Topic,
    tmp_path: Path,
) -> None:
    """Each has a flow of its own, which waits for it, for as long as it takes."""
    places, name, limit = (
        [postgres_place(postgres), mariadb_place(mariadb)],
        topic(1),
        40 * numbers.EPOCH_ROWS,
    )
    with ExitStack() as redis_again:
        away = redis_again.enter_context(ExitStack())
        url = away.enter_context(redis_server(tmp_path))
        sinks = [
            *(numbers.sinks_of(place.url, place.schema) for place in places),
            numbers.redis_sinks(url, "shop"),
            numbers.kafka_sinks(kafka.servers, name),
        ]
        with ExitStack() as flows:
            all_statuses = [
                flows.enter_context(
                    running(tmp_path / f"store-{n}", each, limit, hold_at=2)
                )
                for n, each in enumerate(sinks)
            ]
            for statuses in all_statuses:
                statuses.wait_for(lambda s: s.epoch == 2)
            try:
                postgres.stop(signal.SIGKILL)
                mariadb.stop(signal.SIGKILL)
                away.close()
                kafka.kill()
                for statuses in all_statuses:
                    statuses.let_go()
                time.sleep(OUTAGE_SECONDS)
                stuck = [statuses.all[-1].state for statuses in all_statuses]
            finally:
                postgres.start()
                mariadb.start()
                redis_again.enter_context(redis_server(tmp_path))
                kafka.start()
        assert_in_redis(url, "shop", limit)

    assert set(stuck[:3]) == {"waiting"}
    for statuses in all_statuses:
        last = statuses.all[-1]
        assert (last.state, last.error) == ("stopped", None)
    for place in places:
        assert_in_tables(place, limit)
    assert_in_kafka(kafka, name, limit)


def test_answers_of_redis_that_are_lost(tmp_path: Path) -> None:
    limit = 15 * numbers.EPOCH_ROWS
    with redis_server(tmp_path) as url:
        proxy = CuttingProxy(Path(urlsplit(url).path), is_commit=of_redis)
        sinks = numbers.redis_sinks(f"redis://127.0.0.1:{proxy.port}", "shop")
        run = running(tmp_path / "store", sinks, limit, hold_at=0)
        with closing(proxy), run as statuses:
            statuses.wait_for(lambda s: s.epoch is not None)
            proxy.is_on = True
        assert_in_redis(url, "shop", limit)

    assert min(proxy.cuts.values()) >= 2, f"too few cuts: {proxy.cuts}"
    told = [s.error for s in statuses.all if s.state == "waiting"]
    assert len(told) >= sum(proxy.cuts.values())
    assert all(t and "CommitUnknownError" in t for t in told), told


def test_answers_of_kafka_that_are_lost(
    kafka: KafkaServer, kafka_proxy: CuttingProxy, topic: Topic, tmp_path: Path
) -> None:
    limit, name = 15 * numbers.EPOCH_ROWS, topic(1)
    sinks = numbers.kafka_sinks(f"127.0.0.1:{kafka_proxy.port}", name)

    try:
        with running(tmp_path / "store", sinks, limit, hold_at=0) as statuses:
            statuses.wait_for(lambda s: s.epoch is not None)
            kafka_proxy.is_on = True
    finally:
        kafka_proxy.is_on = False

    assert min(kafka_proxy.cuts.values()) >= 2, f"too few cuts: {kafka_proxy.cuts}"
    assert_in_kafka(kafka, name, limit)
