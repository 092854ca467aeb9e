"""Kills of the driver, at every point of an epoch: sinks equal the oracle."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.chaos import numbers, nursery
from tests.chaos.views import (
    Epochs,
    KafkaView,
    Sums,
    View,
    epochs_of_table,
    rows_of_redis,
    sums_of_table,
    view_of_redis,
    view_of_tables,
)
from tests.databases.places import Place, SqlitePlace, mariadb_place, postgres_place
from tests.servers.kafka import Topic, all_records, send_in_transactions
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres
from tests.servers.redis import redis_server
from tests.servers.s3 import s3_settings
from tools.kafka_server import KafkaServer

from riverlock.storage.object import ObjectStorage

pytestmark = pytest.mark.chaos

# Every point three times.
KILLS = int(os.environ.get("RIVERLOCK_KILLS", "36"))


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
    """Reads both outputs, over and over, and keeps what no reader may see."""

    def __init__(self, view: View) -> None:
        self._view, self._done = view, threading.Event()
        self.reads, self.wrong = 0, list[str]()

    def look(self) -> None:
        seen, sums = self._view()
        self.reads += bool(seen)
        self._check_whole(seen)
        newest = self._newest(sums)
        if not 0 <= len(seen) - newest <= 1:
            self.wrong.append(f"sinks at {len(seen)} and {newest}")

    def _check_whole(self, seen: Epochs) -> None:
        if seen != [(e, numbers.EPOCH_ROWS) for e in range(len(seen))]:
            self.wrong.append(f"numbers shows {seen[-3:]}")

    def _newest(self, sums: Sums) -> int:
        newest = max((e for _, _, e in sums), default=-1) + 1
        if {k: t for k, t, _ in sums} != numbers.totals(newest * numbers.EPOCH_ROWS):
            self.wrong.append(f"totals of epoch {newest}: {sums}")
        return newest

    def _poll(self) -> None:
        while not self._done.wait(0.1):
            self.look()

    @contextmanager
    def polling(self) -> Iterator[None]:
        with ThreadPoolExecutor(1, "riverlock-poller") as beside:
            polling = beside.submit(self._poll)
            try:
                yield
            finally:
                self._done.set()
            polling.result()
        self.look()
        assert self.reads > 1
        assert self.wrong == []


class PollerOfTwo(Poller):
    """Reads two systems, which no transaction spans, one after the other."""

    def __init__(self, epochs: Callable[[], Epochs], sums: Callable[[], Sums]) -> None:
        super().__init__(lambda: (epochs(), sums()))
        self._epochs = epochs

    def look(self) -> None:
        before, sums = self._view()
        after = self._epochs()
        self.reads += bool(before)
        self._check_whole(before)
        self._check_whole(after)
        newest = self._newest(sums)
        # Behind by the epoch that is being committed, and never ahead.
        if not len(before) - 1 <= newest <= len(after):
            self.wrong.append(f"sinks at {len(before)} to {len(after)} and {newest}")


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

    with Poller(view_of_tables(place)).polling():
        lives = live_and_die(tmp_path / "store", "sql", place.url, place.schema or "")

    rows, sums = place.snapshot(
        "SELECT n, name FROM {}numbers ORDER BY n", "SELECT k, total FROM {}totals"
    )
    assert [tuple(r) for r in rows] == numbered(lives.limit)
    assert dict(sums) == numbers.totals(lives.limit)
    left = place.tables() - {"numbers", "totals", "riverlock_epochs"}
    assert not left, "left behind"


def live_and_die_a_little(store: Path | str, *flow: str) -> nursery.Lives:
    """Kill a flow a few times, and let it end."""
    lives = nursery.kills(store, count=KILLS // 3, seed=5, flow=flow)
    assert lives.codes == [-signal.SIGKILL] * (KILLS // 3), lives.words
    assert lives.last == 0, lives.words
    return lives


def test_two_databases_agree_whenever_somebody_looks(
    postgres: Postgres, mariadb: Mariadb, tmp_path: Path
) -> None:
    one, other = postgres_place(postgres), mariadb_place(mariadb)
    where = (one.url, str(one.schema), other.url, str(other.schema))
    poller = PollerOfTwo(partial(epochs_of_table, one), partial(sums_of_table, other))

    with poller.polling():
        lives = live_and_die_a_little(tmp_path / "store", "two", *where)

    (rows,) = one.snapshot("SELECT n, name FROM {}numbers ORDER BY n")
    (sums,) = other.snapshot("SELECT k, total FROM {}totals")
    assert [tuple(r) for r in rows] == numbered(lives.limit)
    assert dict(sums) == numbers.totals(lives.limit)


def test_kafka_and_redis_agree_whenever_somebody_looks(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    name = topic(1)
    with (
        redis_server(tmp_path) as url,
        closing(KafkaView(kafka.servers, name)) as in_kafka,
    ):
        poller = PollerOfTwo(in_kafka.epochs, lambda: rows_of_redis(url, "shop")[1])
        where = (kafka.servers, name, url, "shop")
        with poller.polling():
            lives = live_and_die_a_little(tmp_path / "store", "kafka and redis", *where)
        _, sums = rows_of_redis(url, "shop")

    assert sorted((r["n"], r["name"]) for r in in_kafka.rows) == numbered(lives.limit)
    assert {k: total for k, total, _ in sums} == numbers.totals(lives.limit)


def test_of_redis(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url:
        with Poller(view_of_redis(url, "shop")).polling():
            lives = live_and_die(tmp_path / "store", "redis", url, "shop")
        rows, sums = rows_of_redis(url, "shop")

    assert sorted((r["n"], r["name"]) for r in rows) == numbered(lives.limit)
    # Epochs are in order, each in one piece.
    epochs = [r["epoch"] for r in rows]
    assert epochs == sorted(epochs)
    assert {k: total for k, total, _ in sums} == numbers.totals(lives.limit)


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
        if re.fullmatch(r"_riverlock/\d{12}\.json", entry.path)
        for file in json.loads(root.get(entry.path))["files"]
    ]
    shown = [e.path for e in root.list() if e.path.startswith("epoch=")]
    assert sorted(listed) == sorted(shown)
    rows = [json.loads(row) for name in listed for row in root.get(name).splitlines()]
    assert sorted((r["n"], r["name"]) for r in rows) == numbered(lives.limit)


def test_of_a_store_in_an_object_store(
    s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_settings(s3_endpoint).items():
        monkeypatch.setenv(name, value)
    place = SqlitePlace(tmp_path)

    lives = live_and_die_a_little(
        f"s3://bucket/{uuid.uuid4().hex}", "sql", place.url, ""
    )

    rows, sums = place.snapshot(
        "SELECT n, name FROM numbers ORDER BY n", "SELECT k, total FROM totals"
    )
    assert [tuple(r) for r in rows] == numbered(lives.limit)
    assert dict(sums) == numbers.totals(lives.limit)


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

    if len(nursery.POINTS) * 3 <= KILLS:
        assert {nursery.SENT, nursery.KNOWN} <= set(lives.points)
    found, expected = (
        sorted((m.key(), m.value(), m.partition()) for m in all_records(*where))
        for where in ((kafka.servers, target), (kafka.servers, source))
    )
    assert found == expected
