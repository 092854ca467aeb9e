"""Keys of Redis as a table: what a sink wrote is what is looked up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.servers.redis import redis_server

import riverlock as rl
from riverlock.core.errors import (
    InvalidConfigError,
    SourceError,
    SourceUnavailableError,
)

TYPES = (
    "user string, n bigint, price decimal(9,2), ratio double, good boolean,"
    " day date, at timestamp"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as found:
        yield found


@pytest.mark.parametrize("shape", ["hash", "json"])
def test_what_the_sink_wrote_is_found(url: str, tmp_path: Path, shape: str) -> None:
    import pyarrow as pa

    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.base.stager import StagePoint
    from riverlock.core.types import schema_of
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.local import LocalStorage

    rows: list[dict[str, Any]] = [
        {
            "user": f"é*{n}",
            "n": 2**60 + n,
            "price": Decimal("1.25"),
            "ratio": 0.1,
            "good": bool(n % 2),
            "day": date(2026, 1, 2),
            "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        }
        for n in range(1500)
    ]
    rows[7] |= {"price": None, "at": None}
    schema, storage = schema_of(TYPES), LocalStorage(tmp_path)
    sink = rl.sinks.redis(url, key=f"{shape}[x]:{{user}}:end", shape=shape)
    use = SinkUse(uid="out", schema=schema, replaces=False)
    committer = sink.committer(use, storage)
    committer.open(Owner(flow=shape, sink="out", run=1, origin=None))
    point = StagePoint(
        storage=storage, folder="staged", epoch=0, attempt="a", flow=shape
    )
    table = pa.Table.from_pylist(rows, schema=schema.to_arrow())
    tokens = sink.stager(use).stage(table, point)
    committer.commit(0, SinkOutput(kind="redis", tokens=tuple(tokens), rows=len(rows)))

    mine = rl.tables.redis(
        url, key=f"{shape}[x]:{{user}}:end", schema=TYPES, shape=shape
    )

    found = sorted(mine.table().to_pylist(), key=lambda row: row["n"])
    assert found == rows


def test_columns_may_be_in_the_key_alone(url: str) -> None:
    server = redis.Redis.from_url(url)
    server.hset("rate:EUR:2026", mapping={"rate": "1.5"})
    server.hset("rate:USD:2026", mapping={"other": "x"})
    mine = rl.tables.redis(
        url, key="rate:{coin}:{year}", schema="coin string, year int, rate double"
    )

    assert sorted(mine.table().to_pylist(), key=str) == [
        {"coin": "EUR", "year": 2026, "rate": 1.5},
        {"coin": "USD", "year": 2026, "rate": None},
    ]


@pytest.mark.parametrize("shape", ["hash", "json"])
def test_decimals_keep_all_digits(url: str, shape: str) -> None:
    server, digits = redis.Redis.from_url(url), "12345678901234567890.12"
    if shape == "hash":
        server.hset("cents:1", mapping={"cents": digits, "x": "1.5"})
    else:
        server.set("cents:1", f'{{"cents": {digits}, "x": 1.5, "more": [1]}}')
    mine = rl.tables.redis(
        url,
        key="cents:{n}",
        schema="n int, cents decimal(38,2), x double, none bigint",
        shape=shape,
    )

    assert mine.table().to_pylist() == [
        {"n": 1, "cents": Decimal(digits), "x": 1.5, "none": None}
    ]
    server.delete("cents:1")


def test_keys_that_can_be_read_in_two_ways_are_not_guessed(url: str) -> None:
    server = redis.Redis.from_url(url)
    server.hset("of:1:2:3", mapping={"a": "1", "b": "2:3", "n": "7"})
    mine = rl.tables.redis(url, key="of:{a}:{b}", schema="a string, b string, n int")

    assert mine.table().to_pylist() == [{"a": "1", "b": "2:3", "n": 7}]

    server.hdel("of:1:2:3", "b")
    with pytest.raises(SourceError, match="several ways"):
        mine.table()


def test_a_server_that_does_not_let_us_in_is_not_waited_for(url: str) -> None:
    wrong = url.replace("://", "://me:s3cret@")
    mine = rl.tables.redis(wrong, key="x:{n}", schema="n int")

    with pytest.raises(SourceError) as caught:
        mine.table()

    assert "s3cret" not in str(caught.value)


def test_values_of_another_kind_are_loud(url: str) -> None:
    server = redis.Redis.from_url(url)
    server.hset("odd:1", mapping={"n": "many"})
    server.set("text:1", "x")

    for key in ("odd:{id}", "text:{id}"):
        with pytest.raises(SourceError):
            rl.tables.redis(url, key=key, schema="id int, n int").table()


def test_a_server_that_is_away_is_said_to_be_away() -> None:
    mine = rl.tables.redis(
        "redis://:s3cret@127.0.0.1:9/0", key="u:{id}", schema="id int"
    )

    with pytest.raises(SourceUnavailableError) as caught:
        mine.table()

    assert "127.0.0.1:9" in str(caught.value)
    assert "s3cret" not in str(caught.value) + repr(mine)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "u"},
        {"key": "u:{other}"},
        {"shape": "stream"},
        {"url": "http://s3cret"},
        {"schema": "id int, a array<int>"},
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"url": "redis://h", "key": "u:{id}", "schema": "id int"}
    given |= wrong

    with pytest.raises(InvalidConfigError) as caught:
        rl.tables.redis(given.pop("url"), **given)

    assert "s3cret" not in str(caught.value)
