"""A table that changes under a running flow is refused before a value is altered."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.databases.places import Place, SqlitePlace
from tests.databases.test_tables import SERVERS, Table
from tests.servers.mariadb import Mariadb

from riverlock.core.errors import CommitRejectedError, InvalidFlowError, SinkError
from riverlock.storage import LocalStorage

# A type that rounds, and the one it was.
TYPES = {
    "postgresql": ("numeric(10,0)", "double precision", "ALTER COLUMN amount TYPE"),
    "mysql": ("decimal(10,0)", "double", "MODIFY amount"),
}
COLUMNS = "id bigint, amount double"


@pytest.fixture(params=["postgres", "mariadb"])
def place(request: pytest.FixtureRequest) -> Place:
    return SERVERS[request.param](request.getfixturevalue(request.param))


def alter(place: Place, *, back: bool = False) -> None:
    *kinds, how = TYPES[place.url.partition(":")[0]]
    place.server.query(  # type: ignore[attr-defined]
        f"ALTER TABLE {place.schema}.out {how} {kinds[back]}"
    )


def amounts(place: Place) -> list[float]:
    (found,) = place.snapshot("SELECT amount FROM {}out ORDER BY id")
    return [float(amount) for (amount,) in found]


def test_a_type_that_changes_before_the_commit(
    place: Place, store: LocalStorage
) -> None:
    table = Table(place, store, COLUMNS, create=True).open()
    table.write({"id": 1, "amount": 0.5})
    staged = table.stage({"id": 2, "amount": 50.5})
    alter(place)

    with pytest.raises(CommitRejectedError) as caught:
        table.committer.commit(table.epoch, staged)

    assert "column 'amount' is" in str(caught.value)
    assert "(10,0)" in str(caught.value)
    alter(place, back=True)
    table.committer.commit(table.epoch, staged)  # as a new start does
    assert amounts(place)[1:] == [50.5]


def test_a_type_that_changes_before_rows_are_staged_and_is_put_back(
    place: Place, store: LocalStorage
) -> None:
    table = Table(place, store, COLUMNS, create=True).open()
    alter(place)

    with pytest.raises(SinkError, match=r"column 'amount' is .*10,0.*nothing of this"):
        table.stage({"id": 2, "amount": 50.5})

    alter(place, back=True)
    table.write({"id": 2, "amount": 50.5})
    assert amounts(place) == [50.5]


def test_a_column_or_a_key_that_is_gone(place: Place, store: LocalStorage) -> None:
    table = Table(place, store, COLUMNS, how="upsert", key="id", create=True).open()
    staged = table.stage({"id": 2, "amount": 50.5})
    drop = (
        "DROP CONSTRAINT out_pkey"
        if place.url.startswith("postgresql")
        else "DROP PRIMARY KEY"
    )
    place.server.query(f"ALTER TABLE {place.schema}.out {drop}")  # type: ignore[attr-defined]

    with pytest.raises(CommitRejectedError, match="a primary key or unique index"):
        table.committer.commit(table.epoch, staged)

    assert amounts(place) == []


@pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY"])
def test_a_table_without_transactions_is_refused(
    mariadb: Mariadb, store: LocalStorage, engine: str
) -> None:
    """It would keep rows of a commit that was taken back: they would come twice."""
    place = SERVERS["mariadb"](mariadb)
    table = Table(place, store, COLUMNS, create=True).open()
    staged = table.stage({"id": 1, "amount": 0.5})
    mariadb.query(f"ALTER TABLE {place.schema}.out ENGINE = {engine}")

    with pytest.raises(CommitRejectedError, match=f"with transactions.*{engine}"):
        table.committer.commit(table.epoch, staged)
    for look in (Table(place, store, COLUMNS).committer.probe, table.open):
        with pytest.raises(InvalidFlowError, match=engine) as caught:
            look()
        assert "ENGINE = InnoDB" in caught.value.hint
    assert amounts(place) == []
    mariadb.query(f"ALTER TABLE {place.schema}.out ENGINE = InnoDB")
    table.committer.commit(table.epoch, staged)
    assert amounts(place) == [0.5]


@pytest.mark.parametrize(
    ("collation", "is_told"),
    [
        ("utf8mb4_general_ci", True),
        ("utf8mb4_bin", True),  # 'a' is 'a ' there
        ("utf8mb4_nopad_bin", False),
    ],
)
def test_keys_that_a_table_takes_for_one_are_told(
    mariadb: Mariadb,
    store: LocalStorage,
    collation: str,
    is_told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = SERVERS["mariadb"](mariadb)
    mariadb.query(
        f"CREATE TABLE {place.schema}.out (n BIGINT, who VARCHAR(50)"
        f" COLLATE {collation} PRIMARY KEY)"
    )

    Table(place, store, "who string, n bigint", how="upsert", key="who").open()

    told = [r.message for r in caplog.records if collation in r.message]
    assert len(told) == is_told
    assert all("'who'" in words and "one row" in words for words in told)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("TEXT COLLATE NOCASE", "NOCASE"),
        ("TEXT COLLATE RTRIM", "RTRIM"),
        ("TEXT", None),
    ],
)
def test_so_are_those_of_sqlite(
    tmp_path: Path,
    store: LocalStorage,
    column: str,
    told: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import sqlite3

    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        database.execute(f"CREATE TABLE out (who {column} PRIMARY KEY, n INTEGER)")
    place = SqlitePlace(tmp_path)

    Table(place, store, "who string, n bigint", how="upsert", key="who").open()

    words = [r.message for r in caplog.records if "one row" in r.message]
    assert len(words) == (told is not None)
    assert all("'who'" in each and str(told) in each for each in words)


def test_a_table_of_sqlite_that_was_made_anew(
    tmp_path: Path, store: LocalStorage
) -> None:
    import sqlite3

    place = SqlitePlace(tmp_path)
    table = Table(place, store, COLUMNS, create=True).open()
    staged = table.stage({"id": 2, "amount": 50.5})
    with closing(sqlite3.connect(tmp_path / "out.db")) as database, database:
        database.execute("DROP TABLE out")
        database.execute("CREATE TABLE out (id INTEGER, amount TEXT)")

    with pytest.raises(CommitRejectedError, match="column 'amount' is text"):
        table.committer.commit(table.epoch, staged)

    assert amounts(place) == []
