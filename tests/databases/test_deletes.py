"""Rows that a stream takes back are deleted, in the transaction of their epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.databases.places import Place, SqlitePlace, mariadb_place, postgres_place
from tests.servers.postgres import Postgres

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.types import schema_of
from riverlock.snapshot.format.records import SinkOutput
from riverlock.storage import LocalStorage

SCHEMA = schema_of(
    "name string, at timestamp, rate float, flag boolean, n bigint, gone boolean"
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    server = request.getfixturevalue(request.param)
    return (
        postgres_place(server) if request.param == "postgres" else mariadb_place(server)
    )


def changes(chance: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Return rows of few keys, so that many are changed and deleted in turn."""
    return [
        (
            f"it's {chance.randrange(4)}",
            BEGIN + timedelta(microseconds=chance.randrange(4)),
            chance.choice((0.1, 2.5)),
            chance.random() < 0.5,
            chance.randrange(1000),
            chance.choice((True, False, False, None)),
        )
        for _ in range(count)
    ]


def test_rows_that_are_taken_back_are_deleted(
    place: Place, store: LocalStorage
) -> None:
    before = f"{place.schema}." if place.schema else ""
    sink = rl.sinks.sql(
        place.url,
        table=f"{before}kept",
        how="upsert",
        key=["name", "at", "rate", "flag"],
        create=True,
        deletes="gone",
    )
    use = SinkUse(uid="kept", schema=SCHEMA, replaces=False)
    stager, committer = sink.stager(use), sink.committer(use, store)
    committer.open(Owner(flow="f", sink="kept", run=1))
    chance, expected = random.Random(3), dict[Any, int]()

    for epoch, count in enumerate((300, 40, 1, 60)):
        rows = changes(chance, count)
        if epoch == 2:
            rows = [(*next(iter(expected)), 0, True)]  # nothing but a deletion
        for *key, n, gone in rows:
            expected[tuple(key)] = n
            if gone:
                del expected[tuple(key)]
        columns = [list(c) for c in zip(*rows, strict=True)]
        table = pa.table(columns, schema=SCHEMA.to_arrow())
        at = StagePoint(
            storage=store, folder=f"s/{epoch}", epoch=epoch, attempt="a", flow="f"
        )
        tokens = tuple(stager.stage(table, at))
        for _ in range(2):  # the second time changes nothing
            committer.commit(epoch, SinkOutput(kind="sql", tokens=tokens, rows=count))

        ((*found,),) = [place.snapshot("SELECT name, rate, flag, n FROM {}kept")[0]]
        assert sorted((a, round(b, 1), bool(c), n) for a, b, c, n in found) == sorted(
            (a, b, c, n) for (a, _, b, c), n in expected.items()
        )
    assert expected
    assert place.tables() == {"kept", "riverlock_epochs"}


def test_text_deletes_by_a_key_of_another_type(
    postgres: Postgres, store: LocalStorage
) -> None:
    place = postgres_place(postgres)
    postgres.query(
        f"CREATE TABLE {place.schema}.kept"
        " (id uuid, day date, code char(4), n bigint, PRIMARY KEY (id, day, code))"
    )
    schema = schema_of("id string, day string, code string, n bigint, gone boolean")
    use = SinkUse(uid="kept", schema=schema, replaces=False)
    sink = rl.sinks.sql(
        place.url,
        table=f"{place.schema}.kept",
        how="upsert",
        key=["id", "day", "code"],
        deletes="gone",
    )
    stager, committer = sink.stager(use), sink.committer(use, store)
    committer.open(Owner(flow="f", sink="kept", run=1))
    keys = [(str(UUID(int=n)), "2026-01-01", f"c{n}") for n in range(3)]

    for epoch, rows in enumerate(
        (
            [(*key, 1, False) for key in keys],
            # No row can have these keys, which is no reason not to commit.
            [
                ("no uuid", *keys[0][1:], 1, True),
                (*keys[1], 1, True),
                (*keys[0][:2], "\0", 1, True),
            ],
        )
    ):
        columns = [list(c) for c in zip(*rows, strict=True)]
        table = pa.table(columns, schema=schema.to_arrow())
        at = StagePoint(
            storage=store, folder=f"s/{epoch}", epoch=epoch, attempt="a", flow="f"
        )
        tokens = tuple(stager.stage(table, at))
        output = SinkOutput(kind="sql", tokens=tokens, rows=len(rows))
        committer.commit(epoch, output)

    (left,) = place.snapshot("SELECT id FROM {}kept ORDER BY id")
    assert [str(id) for (id,) in left] == [keys[0][0], keys[2][0]]


def test_what_cannot_delete_is_refused() -> None:
    def sink(deletes: str, **more: Any) -> Any:
        return rl.sinks.sql("sqlite:///x.db", table="t", deletes=deletes, **more)

    with pytest.raises(InvalidConfigError, match="how='append'"):
        sink("gone")
    with pytest.raises(InvalidConfigError, match="beside the key"):
        sink("k", how="upsert", key="k")
    use = SinkUse(uid="t", schema=schema_of("k int, gone int"), replaces=False)
    with pytest.raises(InvalidFlowError, match="got int"):
        sink("gone", how="upsert", key="k").stager(use)
    with pytest.raises(InvalidFlowError, match="no such column"):
        sink("away", how="upsert", key="k").stager(use)


GAP = 10


class Sessions(rl.Process):
    """Gives each session as it grows, and takes back those that were merged."""

    output = "user string, begin bigint, until bigint, n bigint, gone boolean"
    found = rl.Map("long", "struct<until:bigint,n:bigint>")

    def on_event(self, order: Any, ctx: rl.Context) -> Iterator[tuple[Any, ...]]:
        begin, until, n = order.at, order.at, 1
        for first, session in list(self.found.items()):
            if first - GAP <= order.at <= session.until + GAP:
                begin, until = min(begin, first), max(until, session.until)
                n += session.n
                del self.found[first]
                yield order.user, first, session.until, session.n, True
        self.found[begin] = (until, n)
        yield order.user, begin, until, n, False


def sessions(orders: list[tuple[str, int]]) -> list[tuple[str, int, int, int]]:
    """What a batch over all orders gives."""
    found: list[list[Any]] = []
    for user, at in sorted(orders):
        if found and found[-1][0] == user and at - found[-1][2] <= GAP:
            found[-1][2:] = [at, found[-1][3] + 1]
        else:
            found.append([user, at, at, 1])
    return [tuple(session) for session in found]


@pytest.mark.spark
def test_sessions_that_merge_leave_one_row(spark: SparkSession, tmp_path: Path) -> None:
    place, rows = SqlitePlace(tmp_path), 120
    columns = {
        "user": "concat('u', id % 3)",
        "at": "id * 7919 % 1009",
        "time": "timestamp_seconds(id * 7919 % 1009)",
    }
    flow = rl.Flow("sessions")
    orders = flow.read(rl.sources.generator(columns, rows=rows), uid="orders")

    def table(name: str, begin: str) -> Any:
        return rl.sinks.sql(
            place.url,
            table=name,
            how="upsert",
            key=["user", begin],
            create=True,
            deletes="gone",
        )

    orders.key_by("user").process(Sessions(), uid="sessions").write(
        table("sessions", "begin"), uid="table"
    )
    timed = orders.event_time("time", delay="1 hour").key_by("user")
    timed.window(rl.sessions(timedelta(seconds=GAP))).agg(
        n="count(*)", uid="ours"
    ).write(table("updated", "window_start"), mode="update", uid="updated")
    flow.run(
        str(tmp_path / "store"), spark=spark, available_now=True, max_rows_per_epoch=40
    )

    expected = sessions([(f"u{n % 3}", n * 7919 % 1009) for n in range(rows)])
    assert any(n > 1 for *_, n in expected)
    ((*found,),) = [place.snapshot("SELECT * FROM {}sessions")[0]]
    assert sorted(map(tuple, found)) == expected
    ((*found,),) = [place.snapshot("SELECT * FROM {}updated")[0]]
    assert sorted((user, *map(seconds, bounds), n) for user, *bounds, n in found) == [
        (user, begin, until + GAP, n) for user, begin, until, n in expected
    ]


def seconds(text: str) -> float:
    """Return an instant as SQLite has it."""
    return datetime.fromisoformat(text).timestamp()
