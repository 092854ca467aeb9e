"""Kills of the driver, at every point of an epoch: sinks equal the oracle."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from deltalake import DeltaTable
from tests.chaos import numbers, nursery
from tests.databases.places import Place, SqlitePlace, mariadb_place, postgres_place
from tests.servers.kafka import Topic, all_records, send_in_transactions
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres
from tests.servers.redis import redis_server
from tests.servers.s3 import s3_settings
from tools.kafka_server import KafkaServer

from riverlock.storage.object import ObjectStorage

pytestmark = pytest.mark.chaos

KILLS = int(os.environ.get("RIVERLOCK_KILLS", "50"))


def live_and_die(store: Path, *flow: str) -> nursery.Lives:
    """Kill a flow again and again, let it end, and prove that all of it happened."""
    lives = nursery.kills(store, count=KILLS, seed=11, flow=flow)
    assert lives.codes == [-signal.SIGKILL] * KILLS, lives.words
    assert lives.last == 0, lives.words
    assert len(lives.points) == KILLS
    if len(nursery.POINTS) * 3 <= KILLS:
        assert set(lives.points) >= set(nursery.POINTS)
    return lives


def numbered(end: int) -> list[tuple[int, str]]:
    return [(n, f"number {n}") for n in range(end)]


class Poller:
    """Reads both tables, over and over, and keeps what no reader may see."""

    def __init__(self, place: Place) -> None:
        self._place, self._done = place, threading.Event()
        self.reads, self.wrong = 0, list[str]()

    def look(self) -> None:
        (per_epoch, sums) = self._place.snapshot(
            "SELECT epoch, COUNT(*) FROM {}numbers GROUP BY epoch ORDER BY epoch",
            "SELECT k, total, epoch FROM {}totals",
        )
        self.reads += 1
        seen = [tuple(r) for r in per_epoch]
        whole = [(e, numbers.EPOCH_ROWS) for e in range(len(seen))]
        if seen != whole:
            self.wrong.append(f"numbers shows {seen[-3:]}")
        newest = max((e for _, _, e in sums), default=-1) + 1
        if {k: t for k, t, _ in sums} != numbers.totals(newest * numbers.EPOCH_ROWS):
            self.wrong.append(f"totals of epoch {newest}: {sums}")
        if not 0 <= len(seen) - newest <= 1:
            self.wrong.append(f"sinks at {len(seen)} and {newest}")

    def _poll(self) -> None:
        while not self._done.wait(0.1):
            if {"numbers", "totals"} <= self._place.tables():
                break
        while not self._done.wait(0.1):
            self.look()

    @contextmanager
    def polling(self) -> Iterator[None]:
        thread = threading.Thread(target=self._poll, name="riverlock-poller")
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()


def place_of(name: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    if name == "sqlite":
        return SqlitePlace(folder)
    server = request.getfixturevalue(name)
    return postgres_place(server) if name == "postgres" else mariadb_place(server)


@pytest.mark.parametrize("name", ["sqlite", "postgres", "mariadb"])
def test_of_databases(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = place_of(name, request, tmp_path)
    poller = Poller(place)

    with poller.polling():
        lives = live_and_die(tmp_path / "store", "sql", place.url, place.schema or "")

    poller.look()
    assert poller.reads > 1
    assert poller.wrong == []
    rows, sums = place.snapshot(
        "SELECT n, name FROM {}numbers ORDER BY n", "SELECT k, total FROM {}totals"
    )
    assert [tuple(r) for r in rows] == numbered(lives.limit)
    assert dict(sums) == numbers.totals(lives.limit)
    left = place.tables() - {"numbers", "totals", "riverlock_epochs"}
    assert not left, "left behind"


class PollerOfTwo:
    """Reads two databases, which no transaction spans, one after the other."""

    def __init__(self, numbers_in: Place, totals_in: Place) -> None:
        self._numbers_in, self._totals_in = numbers_in, totals_in
        self.reads, self.wrong = 0, list[str]()

    def _epochs(self) -> int:
        """Return how many epochs the table that is committed first has."""
        (found,) = self._numbers_in.snapshot(
            "SELECT epoch, COUNT(*) FROM {}numbers GROUP BY epoch ORDER BY epoch"
        )
        if [tuple(r) for r in found] != [
            (e, numbers.EPOCH_ROWS) for e in range(len(found))
        ]:
            self.wrong.append(f"numbers shows {found[-3:]}")
        return len(found)

    def look(self) -> None:
        before = self._epochs()
        (sums,) = self._totals_in.snapshot("SELECT k, total, epoch FROM {}totals")
        after = self._epochs()
        self.reads += 1
        newest = max((e for _, _, e in sums), default=-1) + 1
        if {k: t for k, t, _ in sums} != numbers.totals(newest * numbers.EPOCH_ROWS):
            self.wrong.append(f"totals of epoch {newest}: {sums}")
        # Behind by the epoch that is being committed, and never ahead.
        if not before - 1 <= newest <= after:
            self.wrong.append(f"sinks at {before} to {after} and {newest}")

    def poll(self, done: threading.Event) -> None:
        places = {"numbers": self._numbers_in, "totals": self._totals_in}
        while not done.wait(0.1):
            if all(table in place.tables() for table, place in places.items()):
                self.look()


def test_two_databases_agree_whenever_somebody_looks(
    postgres: Postgres, mariadb: Mariadb, tmp_path: Path
) -> None:
    one, other = postgres_place(postgres), mariadb_place(mariadb)
    poller, done = PollerOfTwo(one, other), threading.Event()
    where = (one.url, str(one.schema), other.url, str(other.schema))
    with ThreadPoolExecutor(1, "riverlock-poller") as beside:
        polling = beside.submit(poller.poll, done)
        try:
            lives = nursery.kills(
                tmp_path / "store", count=KILLS // 3, seed=5, flow=("two", *where)
            )
        finally:
            done.set()
        polling.result()

    assert lives.codes == [-signal.SIGKILL] * (KILLS // 3), lives.words
    assert lives.last == 0, lives.words
    poller.look()
    assert poller.reads > 1
    assert poller.wrong == []
    (rows,) = one.snapshot("SELECT n, name FROM {}numbers ORDER BY n")
    (sums,) = other.snapshot("SELECT k, total FROM {}totals")
    assert [tuple(r) for r in rows] == numbered(lives.limit)
    assert dict(sums) == numbers.totals(lives.limit)


def test_of_redis(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url:
        lives = live_and_die(tmp_path / "store", "redis", url, "shop")
        server = redis.Redis.from_url(url, decode_responses=True)
        stream: Any = server.xrange("shop:numbers")
        rows = [json.loads(row["row"]) for _, row in stream]
        sums = {k: server.hget(f"shop:total:{k}", "total") for k in range(numbers.KEYS)}
        server.close()

    assert sorted((r["n"], r["name"]) for r in rows) == numbered(lives.limit)
    # Epochs are in order, each in one piece.
    epochs = [r["epoch"] for r in rows]
    assert epochs == sorted(epochs)
    expected = numbers.totals(lives.limit)
    assert sums == {k: str(total) for k, total in expected.items()}


def test_of_delta(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    lives = live_and_die(tmp_path / "store", "delta", path)

    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted((r["n"], r["name"]) for r in rows) == numbered(lives.limit)


def test_of_files_in_an_object_store(
    s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_settings(s3_endpoint).items():
        monkeypatch.setenv(name, value)
    path = f"s3://bucket/{uuid.uuid4().hex}"
    lives = live_and_die(tmp_path / "store", "files", path)

    root = ObjectStorage(path)
    listed = [
        file["path"]
        for entry in root.list("_riverlock/")
        if entry.path.endswith(".json") and "owner" not in entry.path
        for file in json.loads(root.get(entry.path))["files"]
    ]
    shown = [e.path for e in root.list() if e.path.startswith("epoch=")]
    assert sorted(listed) == sorted(shown)
    rows = [json.loads(row) for name in listed for row in root.get(name).splitlines()]
    assert sorted((r["n"], r["name"]) for r in rows) == numbered(lives.limit)


def test_of_kafka(kafka: KafkaServer, topic: Topic, tmp_path: Path) -> None:
    source, target = topic(2), topic(3)
    groups = [range(n, n + 20) for n in range(0, KILLS * 60, 20)]
    # Some transactions are aborted: nobody may ever see their records.
    send_in_transactions(
        kafka.servers,
        source,
        [
            (n % 7 != 3, [(b"k%d" % (i % 11), b"%d" % i) for i in group])
            for n, group in enumerate(groups)
        ],
    )

    lives = live_and_die(tmp_path / "store", "kafka", kafka.servers, source, target)

    if KILLS >= 50:
        assert {nursery.SENT, nursery.KNOWN} <= set(lives.points)
    found, expected = (
        sorted((m.key(), m.value(), m.partition()) for m in all_records(*where))
        for where in ((kafka.servers, target), (kafka.servers, source))
    )
    assert found == expected
