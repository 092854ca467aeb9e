"""Whatever tables and columns are called, rows go in, change, go, and are read."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.databases.places import Place, SqlitePlace, mariadb_place, postgres_place
from tests.databases.test_sources import reader_of, rows_of

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.core.types import Field, Schema, type_of
from riverlock.snapshot.format.records import SinkOutput
from riverlock.storage import LocalStorage

ODD = """100%|%s|a%sb|%(k)s|50%%|:name|a?b|back\\slash|back`tick|do"uble|it's|two words
|ünï漢|Mixed Case|select|a;b|a-b|{}|$1|@x|/* x */|a,b|(|dotted.name|#|%""".replace(
    "\n", ""
)
COLUMNS = ODD.split("|")
SERVERS: dict[str, Callable[[Any], Place]] = {
    "postgres": postgres_place,
    "mariadb": mariadb_place,
}


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    return SERVERS[request.param](request.getfixturevalue(request.param))


def named(place: Place, table: str) -> str:
    return table if place.schema is None else f"{place.schema}.{table}"


def read(url: str, table: str, schema: Schema) -> list[tuple[Any, ...]]:
    """Read a table by its first column, which is a number, as a source does."""
    with closing(
        reader_of(url, table=table, column=schema.names[0], delay="0 seconds")
    ) as reader:
        start = reader.initial()
        assert reader._selection.schema.names == schema.names
        latest = {"value": reader._newest(start["value"])}
        end = reader.advance(start, latest, 1_000_000)
        return rows_of(reader, start, end)


@pytest.mark.parametrize("how", ["append", "upsert", "deletes", "replace"])
def test_any_name_of_a_column(how: str, place: Place, store: LocalStorage) -> None:
    number, text = type_of("bigint"), type_of("string")
    schema = Schema(
        (Field("100%", number), *(Field(n, text) for n in COLUMNS if n != "100%"))
    )
    of = Schema((*schema.fields, Field("gone %s", type_of("boolean"))))
    kind = "upsert" if how == "deletes" else how
    more: dict[str, Any] = {"key": ["100%", "%s"]} if kind == "upsert" else {}
    if how == "deletes":
        more["deletes"] = "gone %s"
    table = named(place, '100% of %s: it\'s a "table"?')
    sink = rl.sinks.sql(place.url, table=table, how=kind, create=True, **more)
    use = SinkUse(
        uid="out",
        schema=of if how == "deletes" else schema,
        replaces=how == "replace",
    )
    committer = sink.committer(use, store)
    committer.open(Owner(flow="f", sink="out", run=1))

    def row(n: int, value: str) -> dict[str, Any]:
        return {"100%": n, **{c: f"{value} {c}" for c in schema.names[1:]}, "%s": "k"}

    first = [row(n, "old") for n in range(4)]
    second = [row(n, "new") for n in range(2, 6)]
    for epoch, rows in enumerate((first, second)):
        given = [{**r, "gone %s": r["100%"] == 3} for r in rows]
        data = pa.Table.from_pylist(given, schema=use.schema.to_arrow())
        at = StagePoint(
            storage=store,
            folder=f"s/{epoch}",
            epoch=epoch,
            attempt=uuid.uuid4().hex,
            flow="f",
        )
        tokens = tuple(sink.stager(use).stage(data, at))
        committer.commit(epoch, SinkOutput(kind="sql", tokens=tokens, rows=len(rows)))

    merged = {r["100%"]: r for r in (*first, *second)}
    expected = {
        "append": [*first, *second],
        "upsert": list(merged.values()),
        "deletes": [r for n, r in merged.items() if n != 3],
        "replace": second,
    }[how]
    found = read(place.url, table, schema)
    assert sorted(found) == sorted(tuple(r.values()) for r in expected)


def test_any_name_of_a_schema(
    request: pytest.FixtureRequest, store: LocalStorage
) -> None:
    for name, make in SERVERS.items():
        server = request.getfixturevalue(name)
        place, mark = make(server), '"' if name == "postgres" else "`"
        schema = f"Sch%sma {uuid.uuid4().hex[:8]}: 100%?"
        server.query(f"CREATE SCHEMA {mark}{schema}{mark}")
        columns = Schema((Field("n", type_of("bigint")),))
        use = SinkUse(uid="out", schema=columns, replaces=False)
        sink = rl.sinks.sql(place.url, table=f"{schema}.t", create=True)
        committer = sink.committer(use, store)
        for run in (1, 2):
            committer.open(Owner(flow="f", sink="out", run=run))
        data = pa.table({"n": [7]})
        at = StagePoint(storage=store, folder="s", epoch=0, attempt=name, flow="f")
        tokens = tuple(sink.stager(use).stage(data, at))
        committer.commit(0, SinkOutput(kind="sql", tokens=tokens, rows=1))

        assert read(place.url, f"{schema}.t", columns) == [(7,)]
