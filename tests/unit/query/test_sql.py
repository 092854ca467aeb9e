"""SQL over snapshots: what is there, at which epoch, and what cannot be reached."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.cli.conftest import cli as cli
from tests.unit.cli.stores import make_store

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, SnapshotCorruptedError
from riverlock.query.opened_store import Store
from riverlock.snapshot.format.channels import Channel, Segment
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.format.state_files import encode_table


@pytest.fixture
def root(tmp_path: Path) -> Path:
    catalog = make_store(tmp_path / "store")
    catalog.pin("v1", epoch=1, now_us=7)
    channel = Channel(catalog.storage, "landed")
    landed: list[dict[str, list[Any]]] = [{"a": [1, 2]}, {"a": [3], "b": ["x"]}]
    for number, columns in enumerate(landed):
        data = encode_table(pa.table(columns))
        path = f"{channel.root}data/{number:012d}/file.parquet"
        catalog.storage.put(path, data)
        rows = len(columns["a"])
        file = {
            "path": path,
            "rows": rows,
            "bytes": len(data),
            "checksum": checksum(data),
        }
        schema = ", ".join(f"{n} {'long' if n == 'a' else 'string'}" for n in columns)
        segment = Segment(
            number=number, files=(file,), rows=rows, writer="w", step=0, schema=schema
        )
        assert channel.append(segment)
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Store:
    return rl.open(root)


def test_operators_variables_and_timers_can_be_joined(store: Store) -> None:
    query = """
        SELECT v.user, v.spent, s.total, t.kind
        FROM velocity v
        JOIN (SELECT user, sum(value) total FROM velocity.seen GROUP BY user) s
            USING (user)
        JOIN velocity.timers t USING (user)
        ORDER BY v.user
    """

    assert store.sql(query, at="v1").to_pylist() == [
        {"user": "ann", "spent": 7.5, "total": 2, "kind": "processing"},
        {"user": "ben", "spent": 5.0, "total": 1, "kind": "processing"},
    ]


@pytest.mark.parametrize("name", ["velocity.seen", '"velocity.seen"'])
def test_a_variable_may_be_quoted_with_its_operator(store: Store, name: str) -> None:
    query = f"SELECT sum(value) AS n FROM {name}"

    assert store.sql(query, at="v1").to_pylist() == [{"n": 3}]


def test_a_view_can_be_read_twice_in_a_query(store: Store) -> None:
    query = "SELECT count(*) n FROM velocity a, velocity b"

    assert store.sql(query).to_pylist() == [{"n": 16}]


def test_listings_show_epochs_timers_and_channels(store: Store) -> None:
    epochs = store.sql("SELECT epoch, names FROM epochs ORDER BY epoch").to_pylist()
    timers = store.sql("SELECT key FROM timers WHERE operator = 'velocity'")
    landed = store.sql('SELECT * FROM "channels".landed ORDER BY a').to_pylist()

    assert [(e["epoch"], e["names"]) for e in epochs] == [(0, []), (1, ["v1"]), (2, [])]
    assert set(timers["key"].to_pylist()) == {
        '["ann"]',
        '["ben"]',
        '["cleo"]',
        "[null]",
    }
    assert store.sql("SELECT sum(rows) n FROM channels").to_pylist() == [{"n": 3}]
    assert landed == [
        {"segment": 0, "a": 1, "b": None},
        {"segment": 0, "a": 2, "b": None},
        {"segment": 1, "a": 3, "b": "x"},
    ]
    assert store.channels() == ["landed"]
    assert list(store.channel("landed")) == landed


@pytest.mark.parametrize(
    "query",
    [
        "FROM read_csv('/etc/hostname')",
        "FROM '/etc/hostname'",
        "FROM glob('/*')",
        "COPY (SELECT 1) TO '{root}/copied'",
        "ATTACH '{root}/other.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
    ],
)
def test_queries_reach_nothing_but_the_views(
    store: Store, root: Path, query: str
) -> None:
    before = sorted(root.iterdir())

    with pytest.raises(InvalidConfigError):
        store.sql(query.format(root=root))

    assert sorted(root.iterdir()) == before


def test_damage_is_told_as_damage(store: Store, root: Path) -> None:
    for file in root.glob("regions/main/state/velocity/*.parquet"):
        file.write_bytes(file.read_bytes()[:-1] + b"?")

    assert store.sql("SELECT count(*) n FROM pairs").to_pylist() == [{"n": 3}]
    with pytest.raises(SnapshotCorruptedError):
        store.sql("SELECT count(*) FROM velocity")


def test_without_duckdb_the_extra_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)

    with pytest.raises(InvalidConfigError) as caught:
        store.sql("SELECT 1")

    assert "riverlock[sql]" in caught.value.hint


def test_command_lists_the_views(cli: Any, root: Path) -> None:
    done = cli("sql", root)

    assert done.code == 0
    assert "velocity.seen" in done.out
    assert "user string, key string, value bigint" in done.out
    views = cli("sql", root, "--json").json["views"]
    assert views["pairs"] == {"a": "string", "b": "int", "n": "bigint"}


def test_command_prints_tables_json_and_csv(cli: Any, root: Path) -> None:
    query = "SELECT user, spent, seen FROM velocity ORDER BY spent"

    assert cli("sql", f"{root}@v1", query).out.splitlines() == [
        "user  spent  seen",
        'ben     5.0  {"tea":1}',
        'ann     7.5  {"tea":1,"cocoa":1}',
    ]
    found = cli("sql", f"{root}@0", query, "--json").json
    assert found == {
        "epoch": 0,
        "columns": ["user", "spent", "seen"],
        "rows": [["ann", 3.0, {"tea": 1}], ["ben", 5.0, {"tea": 1}]],
    }
    csv = cli("sql", root, "SELECT user, spent FROM velocity ORDER BY spent", "--csv")
    assert csv.out == "user,spent\n,1.0\ncleo,2.0\nben,5.0\nann,7.5\n"


def test_command_tells_a_wrong_query_and_a_missing_epoch(cli: Any, root: Path) -> None:
    wrong = cli("sql", root, "SELECT nothing FROM velocity")
    missing = cli("sql", f"{root}@v9", "SELECT 1")

    assert wrong.code == 1
    assert "lists the views" in wrong.err
    assert missing.code == 3
    assert "v1" in missing.err


def test_an_at_sign_may_be_part_of_a_directory(cli: Any, root: Path) -> None:
    moved = root.rename(root.with_name("a@b"))

    assert cli("sql", moved, "SELECT 1 AS n", "--json").json["rows"] == [[1]]
    assert cli("sql", f"{moved}@v1", "SELECT 1", "--json").json["epoch"] == 1
