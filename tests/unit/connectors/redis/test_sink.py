"""Redis, as its own client sees it; what all sinks promise is in tests/conformance."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from tests.servers.redis import redis_server

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import Probed, SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.redis.sink import RedisSink
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    InvalidConfigError,
    InvalidFlowError,
    SinkError,
    SinkUnavailableError,
)
from riverlock.core.types import schema_of
from riverlock.snapshot.format.records import SinkOutput
from riverlock.storage.local import LocalStorage
from riverlock.testing import SinkRun


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as address:
        yield address


@pytest.fixture
def server(url: str) -> Any:
    client = redis.Redis.from_url(url, decode_responses=True)
    client.flushall()
    return client


def run(sink: RedisSink, store: Path, number: int = 1) -> SinkRun:
    return SinkRun(sink=sink, storage=LocalStorage(store), run=number, flow="f")


def test_hashes_have_a_field_per_column_and_lose_those_that_become_null(
    server: Any, url: str, tmp_path: Path
) -> None:
    of = run(rl.sinks.redis(url, key="user:{id}", ttl="1 hour"), tmp_path)
    of.commit(1, of.stage(1, [(7, "ann", 1), (8, "bob", 1)], [(7, "eve", 1)]))
    assert server.hgetall("user:7") == {"id": "7", "name": "eve", "epoch": "1"}
    assert 0 < server.ttl("user:8") <= 3_600

    of.commit(2, of.stage(2, [(7, None, 2)]))
    assert server.hgetall("user:7") == {"id": "7", "epoch": "2"}


def test_numbers_that_json_has_no_word_for_are_text(
    server: Any, url: str, tmp_path: Path
) -> None:
    schema = schema_of("id int, x double, y array<double>")
    values = [math.nan, math.inf, -math.inf]
    table = pa.table(
        {"id": [0, 1, 2], "x": values, "y": [[v, 0.5] for v in values]},
        schema=schema.to_arrow(),
    )
    use, store = (
        SinkUse(uid="out", schema=schema, replaces=False),
        LocalStorage(tmp_path),
    )
    for shape in ("hash", "json"):
        sink = rl.sinks.redis(url, key=f"{shape}:{{id}}", shape=shape)
        at = StagePoint(storage=store, folder=shape, epoch=1, attempt="a", flow=shape)
        tokens = tuple(sink.stager(use).stage(table, at))
        committer = sink.committer(use, store)
        committer.open(Owner(flow=shape, sink="out", run=1))
        committer.commit(1, SinkOutput(kind="redis", tokens=tokens, rows=3))

    for n, word in enumerate(["NaN", "Infinity", "-Infinity"]):
        assert server.hgetall(f"hash:{n}") == {
            "id": str(n),
            "x": word,
            "y": f'["{word}",0.5]',
        }
        row = {"id": n, "x": word, "y": [word, 0.5]}
        assert json.loads(server.get(f"json:{n}")) == row
    # What a table of Redis makes of it.
    columns = "id int, x double"
    known = rl.tables.redis(url, key="hash:{id}", schema=columns).table()
    assert sorted(map(repr, known["x"].to_pylist())) == sorted(map(repr, values))


def test_json_has_the_row(server: Any, url: str, tmp_path: Path) -> None:
    of = run(rl.sinks.redis(url, key="{name}/{id}", shape="json"), tmp_path)
    of.commit(1, of.stage(1, [(7, "ann", 1)]))
    assert json.loads(server.get("ann/7")) == {"id": 7, "name": "ann", "epoch": 1}


def test_a_server_that_lost_what_it_acknowledged_is_told_so(
    server: Any, url: str, tmp_path: Path
) -> None:
    of = run(rl.sinks.redis(url, key="user:{id}"), tmp_path)
    of.commit(3, of.stage(3, [(7, "ann", 3)]))
    server.flushall()
    with pytest.raises(CommitRejectedError, match="went back from epoch 3 to -1"):
        of.commit(4, of.stage(4, [(8, "bob", 4)]))
    assert server.keys() == []


@pytest.mark.parametrize("shape", ["hash", "stream"])
def test_a_key_that_holds_something_else_stops_the_epoch_whole(
    server: Any, url: str, tmp_path: Path, shape: str
) -> None:
    # Redis undoes nothing of a transaction of which one command fails.
    server.set("user:8", "not ours")
    of = run(rl.sinks.redis(url, key="user:{id}", shape=shape), tmp_path)
    voted = of.stage(1, [(7, "ann", 1), (8, "bob", 1)])
    for _ in range(2):
        with pytest.raises(CommitRejectedError, match=r"user:8 holds a string"):
            of.commit(1, voted)
        assert not server.exists("user:7")

    server.delete("user:8")
    of.commit(1, voted)
    assert server.exists("user:7", "user:8") == 2


def test_an_older_run_is_refused(server: Any, url: str, tmp_path: Path) -> None:
    sink = rl.sinks.redis(url, key="user:{id}")
    old = run(sink, tmp_path, 1)
    voted = old.stage(1, [(7, "ann", 1)])
    run(sink, tmp_path, 2)
    with pytest.raises(FencedError, match="run 2"):
        old.commit(1, voted)
    assert not server.exists("user:7")


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="hash or json or stream"):
        rl.sinks.redis("redis://localhost", key="{a}", shape="set")
    with pytest.raises(InvalidConfigError, match=r"a .column. in it"):
        rl.sinks.redis("redis://localhost", key="user")
    with pytest.raises(InvalidConfigError, match="redis://"):
        rl.sinks.redis("http://localhost", key="{a}")
    use = SinkUse(uid="out", schema=schema_of("id bigint"), replaces=False)
    with pytest.raises(InvalidFlowError, match=r"user:.name."):
        rl.sinks.redis("redis://localhost", key="user:{name}").stager(use)


def test_a_server_that_is_not_there_is_named_without_its_password(
    tmp_path: Path,
) -> None:
    nowhere = f"unix://me:secret@{tmp_path}/none.sock"
    sink = rl.sinks.redis(nowhere, key="{id}")
    with pytest.raises(SinkError) as caught:
        run(sink, tmp_path)
    assert "none.sock" in str(caught.value)
    assert "secret" not in f"{caught.value}{sink}"


def test_a_probe_says_whether_the_server_answers(
    server: Any, url: str, tmp_path: Path
) -> None:
    use = SinkUse(uid="out", schema=schema_of("id bigint"), replaces=False)
    keys = server.dbsize()

    def probe(at: str) -> None:
        made = rl.sinks.redis(at, key="{id}").committer(use, LocalStorage(tmp_path))
        assert isinstance(made, Probed)
        made.probe()

    probe(url)
    with pytest.raises(SinkUnavailableError, match="does not answer"):
        probe(f"unix://{tmp_path}/none.sock")
    with pytest.raises(InvalidConfigError, match="access to the server"):
        probe(url.replace("unix://", "unix://nobody:wrong@"))
    assert server.dbsize() == keys


def test_a_fork_is_refused_where_its_origin_writes(
    server: Any, url: str, tmp_path: Path
) -> None:
    sink, storage = rl.sinks.redis(url, key="user:{id}"), LocalStorage(tmp_path)
    run(sink, tmp_path)

    def fork(uid: str, number: int) -> None:
        SinkRun(
            sink=sink, storage=storage, run=number, flow="fork", uid=uid, origin="f"
        )

    with pytest.raises(InvalidConfigError, match="an output of its own"):
        fork("conformance", 1)
    for number in (1, 2):
        fork("trial", number)
