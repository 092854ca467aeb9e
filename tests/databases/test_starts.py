"""A start waits for a server that is away; whoever is not let in is told at once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession
from tests.chaos import numbers
from tests.chaos.beside import Statuses, running
from tests.databases.places import Place, mariadb_place, postgres_place
from tests.servers.proxy import CuttingProxy
from tests.servers.redis import redis_server

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import SinkUse
from riverlock.core.clock import SystemClock
from riverlock.core.errors import InvalidConfigError, SinkUnavailableError
from riverlock.core.types import schema_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Stop
from riverlock.snapshot.format.requests import add_request
from riverlock.storage import LocalStorage

SERVERS: dict[str, Callable[[Any], Place]] = {
    "postgres": postgres_place,
    "mariadb": mariadb_place,
}
OWNER = Owner(flow="f", sink="t", run=1)
USE = SinkUse(uid="t", schema=schema_of("k int"), replaces=False)


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
def test_a_start_while_the_server_is_away_waits_for_it(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(name)
    place = SERVERS[name](server)
    proxy = CuttingProxy(server.socket, is_shut=True)
    limit = 2 * numbers.EPOCH_ROWS
    sinks = numbers.sinks_of(server.url(proxy.port), place.schema)

    try:
        with running(tmp_path / "store", sinks, limit) as statuses:
            waiting = statuses.wait_for(lambda s: s.state == "waiting")
            proxy.open()
    finally:
        proxy.close()

    assert waiting.epoch is None
    assert waiting.error is not None
    assert "waiting for sink 'numbers': the run begins when it answers" in waiting.error
    assert f"127.0.0.1:{proxy.port}" in waiting.error
    assert "s3cret" not in str(statuses.all)
    assert (statuses.all[-1].state, statuses.all[-1].error) == ("stopped", None)
    (rows,) = place.snapshot("SELECT n FROM {}numbers ORDER BY n")
    assert [n for (n,) in rows] == list(range(limit))


@pytest.fixture
def nowhere() -> Any:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.spark
def test_a_start_that_waits_can_be_stopped(
    spark: SparkSession, nowhere: str, tmp_path: Path
) -> None:
    flow, statuses = rl.Flow("waits"), Statuses()
    rows = flow.read(rl.sources.generator({"k": "id"}, rows=10))
    url = f"postgresql://u:geheim@{nowhere}/d"
    rows.write(rl.sinks.sql(url, table="t"), uid="table")

    handle = flow.start(str(tmp_path / "store"), spark=spark, on_status=statuses.add)
    waiting = statuses.wait_for(lambda s: s.state == "waiting")
    catalog = Catalog(LocalStorage(tmp_path / "store"))
    run = catalog.newest_run()
    assert run is not None
    now_us = SystemClock().now_us()
    add_request(catalog, Stop(run=run.run), now_us=now_us)  # as `riverlock stop`

    assert handle.wait(60)
    assert waiting.error is not None
    assert "waiting for sink 'table'" in waiting.error
    assert "geheim" not in waiting.error
    last = handle.status()
    assert last is not None
    assert (last.state, last.error, last.epoch) == ("stopped", None, None)


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
@pytest.mark.parametrize("wrong", ["password", "database"])
def test_who_is_not_let_in_is_told_at_once(
    name: str, wrong: str, request: pytest.FixtureRequest, store: LocalStorage
) -> None:
    url: str = request.getfixturevalue(name).url()
    base, rest = url.rsplit("@", 1)
    if wrong == "password":
        url = f"{base}geheim@{rest}"
    else:
        _, options = rest.split("?")
        host = rest.split("/", 1)[0]
        url = f"{base}@{host}/nowhere?{options}"

    with pytest.raises(InvalidConfigError, match="the right to write to t") as caught:
        rl.sinks.sql(url, table="t").committer(USE, store).open(OWNER)

    assert "s3cret" not in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_file_that_is_not_there_is_told_at_once(
    tmp_path: Path, store: LocalStorage
) -> None:
    sink = rl.sinks.sql(f"sqlite:///{tmp_path}/none/out.db", table="t")

    with pytest.raises(InvalidConfigError, match="unable to open"):
        sink.committer(USE, store).open(OWNER)


def test_redis_is_away_or_does_not_let_us_in(
    tmp_path: Path, store: LocalStorage
) -> None:
    def open_with(login: str) -> None:
        url = f"unix://{login}{tmp_path}/redis.sock"
        rl.sinks.redis(url, key="{k}").committer(USE, store).open(OWNER)

    with redis_server(tmp_path) as url:
        with redis.Redis.from_url(url) as server:
            server.config_set("requirepass", "hush")
        with pytest.raises(InvalidConfigError, match="access to the server") as caught:
            open_with(":geheim@")
        open_with(":hush@")
    assert "geheim" not in str(caught.value)
    with pytest.raises(SinkUnavailableError, match="does not answer"):
        open_with(":hush@")
