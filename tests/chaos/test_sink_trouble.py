"""Sinks that deadlock, are slow, or give up a transaction: nothing lost or doubled."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import kafka_copy, numbers
from tests.chaos.children import DEADLINE_SECONDS, ROOT
from tests.databases.places import (
    Place,
    SqlitePlace,
    mariadb_place,
    postgres_place,
)
from tests.servers.kafka import Topic, all_records, ends, send
from tools.kafka_server import KafkaServer

from riverlock.connectors.base.committer import Committer, Owner
from riverlock.core.errors import SinkError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.format.run_status import Status
from riverlock.storage import LocalStorage

pytestmark = pytest.mark.chaos
COPY = (sys.executable, "-m", "tests.chaos.kafka_copy")
SERVERS: dict[str, Callable[[Any], Place]] = {
    "postgres": postgres_place,
    "mariadb": mariadb_place,
}


class Watched:
    """A committer whose calls a test can look at."""

    guarantee = ""

    def __init__(self) -> None:
        self.errors: list[SinkError] = []

    def around(self, committer: Committer) -> Committer:
        self.committer: Any = committer
        return self

    def open(self, owner: Owner) -> None:
        self.committer.open(owner)

    def before(self, epoch: int) -> None:
        """What happens first."""

    def commit(self, epoch: int, output: SinkOutput) -> None:
        self.before(epoch)
        try:
            self.committer.commit(epoch, output)
        except SinkError as error:
            self.errors.append(error)
            raise


class Deadlock(Watched):
    """Somebody else locks the two rows of a commit in the opposite order."""

    def __init__(self, other: Any, schema: str, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self._other, self._schema, self._pool = other, schema, pool
        self._asked: Any = None

    def before(self, epoch: int) -> None:
        if epoch != 2 or self._asked is not None:
            return
        self._execute(f"UPDATE {self._schema}.totals SET total = total WHERE k = 0")
        lock = self.committer._epochs.lock

        def lock_then_meet(connection: Any, epoch: int) -> Any:
            found = lock(connection, epoch)
            if self._asked is None:
                self._asked = self._pool.submit(
                    self._execute,
                    f"SELECT run FROM {self._schema}.riverlock_epochs"
                    " WHERE sink = 'totals' FOR UPDATE",
                )
            return found

        self.committer._epochs.lock = lock_then_meet

    def _execute(self, sql: str) -> None:
        with closing(self._other.cursor()) as cursor:
            cursor.execute(sql)

    def end(self) -> None:
        """The other one goes on as soon as we gave way."""
        self._asked.result(DEADLINE_SECONDS)
        self._execute("ROLLBACK")


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
def test_a_transaction_that_deadlocks_is_tried_again_whole(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(name)
    place = SERVERS[name](server)
    url, limit = place.url, 5 * numbers.EPOCH_ROWS
    if name == "postgres":
        # We are the one who notices, and who gives way.
        url += "&options=-c%20deadlock_timeout%3D50ms"
    with (
        ThreadPoolExecutor(1, "riverlock-other") as pool,
        closing(server.connect()) as other,
    ):
        begin = {
            "postgres": ["SET deadlock_timeout = '1h'", "BEGIN"],
            # Who has written less gives way.
            "mariadb": [
                f"CREATE TABLE {place.schema}.heavy (n INT)",
                "BEGIN",
                f"INSERT INTO {place.schema}.heavy SELECT seq FROM seq_1_to_1000",
            ],
        }[name]
        for sql in begin:
            with closing(other.cursor()) as cursor:
                cursor.execute(sql)
        deadlock = Deadlock(other, str(place.schema), pool)
        told: list[Status] = []

        def on_status(status: Status) -> None:
            told.append(status)
            if status.state == "waiting":
                deadlock.end()

        numbers.run(
            tmp_path / "store",
            numbers.sinks_of(url, place.schema),
            limit=limit,
            on_status=on_status,
            around={"totals": deadlock.around},
        )

    (error,) = deadlock.errors
    assert "deadlock" in str(error).lower()
    assert [s.state for s in told].count("waiting") == 1
    (rows, sums) = place.snapshot(
        "SELECT n FROM {}numbers ORDER BY n", "SELECT k, total FROM {}totals"
    )
    assert [n for (n,) in rows] == list(range(limit))
    assert dict(sums) == numbers.totals(limit)


class Slow(Watched):
    """Takes more than ten times as long as all else that an epoch does."""

    SECONDS = 0.3

    def __init__(self, store: Path) -> None:
        super().__init__()
        self._catalog = Catalog(LocalStorage(store))
        self.ahead: list[int] = []

    def before(self, epoch: int) -> None:
        newest = self._catalog.newest()
        assert newest is not None
        self.ahead.append(newest.epoch - epoch)
        time.sleep(self.SECONDS)


def test_a_slow_sink_holds_the_flow_back(tmp_path: Path) -> None:
    store, place, epochs = tmp_path / "store", SqlitePlace(tmp_path), 8
    slow, told = Slow(store), list[Status]()

    numbers.run(
        store,
        numbers.sinks_of(place.url),
        limit=epochs * numbers.EPOCH_ROWS,
        on_status=told.append,
        around={"totals": slow.around},
    )

    # No epoch is decided before the sink has the one before.
    assert slow.ahead == [0] * epochs
    assert slow.errors == []
    assert {s.state for s in told} == {"running", "stopped"}, "nothing timed out"
    # Where the time goes is shown.
    shown = [s.phases for s in told if s.state == "running"]
    assert min(p["commit"] for p in shown) >= slow.SECONDS
    (sums,) = place.snapshot("SELECT k, total FROM {}totals")
    assert dict(sums) == numbers.totals(epochs * numbers.EPOCH_ROWS)


def test_rows_whose_transaction_timed_out_are_sent_again(
    kafka: KafkaServer, topic: Topic, tmp_path: Path
) -> None:
    plan = kafka_copy.Copy(
        servers=kafka.servers,
        source=topic(1),
        target=topic(1),
        store=str(tmp_path / "store"),
        options={"transaction.timeout.ms": 1000},
    )
    send(kafka.servers, plan.source, [(b"k", b"%d" % n) for n in range(60)])
    child = subprocess.run(
        [*COPY, json.dumps(asdict(plan)), "SIGKILL"],
        cwd=ROOT,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert child.returncode == -signal.SIGKILL

    def is_open() -> bool:
        seen = ends(kafka.servers, plan.target, "read_committed")
        return seen != ends(kafka.servers, plan.target, "read_uncommitted")

    # The rows are there, and the broker gives them up, for nobody comes back in time.
    assert all_records(kafka.servers, plan.target, "read_uncommitted")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while is_open():
        assert time.monotonic() < deadline, "the transaction did not time out"
        time.sleep(0.05)
    assert all_records(kafka.servers, plan.target) == []
    kafka_copy.run(plan)

    found = [m.value() for m in all_records(kafka.servers, plan.target)]
    assert found == [b"%d" % n for n in range(60)]
