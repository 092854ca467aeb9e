"""Tables as sources, without Spark: which rows a range has, and who may add to it."""

from __future__ import annotations

import random
import sqlite3
import time
import uuid
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres

import riverlock as rl
from riverlock.connectors.databases.reading import reader as module
from riverlock.connectors.databases.reading.offsets import decoded, encoded
from riverlock.connectors.databases.reading.reader import SqlReader
from riverlock.connectors.databases.reading.settling import Settling
from riverlock.core.clock import ManualClock
from riverlock.core.errors import (
    EpochAbortedError,
    InvalidConfigError,
    InvalidFlowError,
    SourceError,
    SourceUnavailableError,
)
from riverlock.core.hidden_columns import SEQ


def reader_of(
    url: str, *, clock: ManualClock | None = None, takes_all: bool = False, **of: Any
) -> SqlReader:
    """A reader that plans; only ``read`` needs Spark."""
    return SqlReader(
        cast("SparkSession", None),
        rl.sources.sql(url, **of),
        "in",
        clock or ManualClock(),
        takes_all=takes_all,
    )


def rows_of(
    reader: SqlReader, start: Any, end: Any, tasks: int = 1
) -> list[tuple[Any, ...]]:
    """What tasks read of a range, in the order of their positions."""
    found = [
        row
        for piece in reversed(reader.pieces(start, end, tasks))
        for batch in reader.piece_reader.read(piece)
        for row in batch.to_pylist()
    ]
    found.sort(key=lambda row: row[SEQ])
    assert [row.pop(SEQ) for row in found] == list(range(len(found)))
    return [tuple(row.values()) for row in found]


def everything(reader: SqlReader, start: Any) -> tuple[list[tuple[Any, ...]], Any]:
    """Read what is settled; returns the rows and the new position."""
    end = reader.advance(start, reader.latest(start), 1_000_000)
    return ([] if end == start else rows_of(reader, start, end)), end


def settled(reader: SqlReader, start: Any) -> tuple[list[tuple[Any, ...]], Any]:
    """Read as soon as nobody else is in the server, such as a client that hung up."""
    limit = time.monotonic() + 60
    while (found := everything(reader, start))[1] == start:
        assert time.monotonic() < limit, "nothing is settled"
        time.sleep(0.01)
    return found


def table_in(server: Postgres | Mariadb, columns: str) -> str:
    name = f"in_{uuid.uuid4().hex[:8]}"
    server.query(f"CREATE TABLE {name} ({columns})")
    return name


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "in.db"


def sqlite(file: Path, *statements: str, rows: Any = ()) -> str:
    """Run statements, the last one once per row; returns the URL."""
    with closing(sqlite3.connect(file)) as database, database:
        *before, last = statements
        for statement in before:
            database.execute(statement)
        if rows:
            database.executemany(last, rows)
        else:
            database.execute(last)
    return f"sqlite:///{file}"


def test_rows_of_a_transaction_that_commits_late_are_not_missed(
    postgres: Postgres,
) -> None:
    table = table_in(postgres, "id BIGSERIAL PRIMARY KEY, who TEXT")
    with closing(reader_of(postgres.url(), table=table, column="id")) as reader:
        start = reader.initial()
        with postgres.connect() as slow, slow.transaction():
            slow.execute(f"INSERT INTO {table} (who) VALUES ('slow')".encode())
            postgres.query(f"INSERT INTO {table} (who) VALUES ('fast')")
            assert everything(reader, start) == ([], start)
            assert everything(reader, start) == ([], start)

        # What has come meanwhile does not have to wait for itself.
        found, end = settled(reader, start)
        assert found == [(1, "slow"), (2, "fast")]
        assert end == {**start, "value": 2, "rows": 2}


def test_a_transaction_that_began_earlier_may_still_write_its_time(
    postgres: Postgres,
) -> None:
    table = table_in(postgres, "at TIMESTAMPTZ DEFAULT now(), who TEXT")
    last = f"INSERT INTO {table} VALUES ('2999-01-01', 'last')"
    with closing(reader_of(postgres.url(), table=table, column="at")) as reader:
        start = reader.initial()
        with postgres.connect() as early, early.transaction():
            early.execute("SELECT now()")
            postgres.query(f"INSERT INTO {table} (who) VALUES ('later')")
            postgres.query(last)  # more of the greatest value may come: it waits
            assert everything(reader, start) == ([], start)
            early.execute(f"INSERT INTO {table} (who) VALUES ('early')".encode())

        found, end = settled(reader, start)
        assert [who for _, who in found] == ["early", "later"]
        assert everything(reader, end) == ([], end)


def test_all_that_is_available_waits_for_open_transactions(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(postgres, "id BIGSERIAL PRIMARY KEY, who TEXT")
    reader = reader_of(postgres.url(), table=table, column="id", takes_all=True)
    slow = postgres.connect()
    slow.execute("BEGIN")
    slow.execute(f"INSERT INTO {table} (who) VALUES ('slow')".encode())
    postgres.query(f"INSERT INTO {table} (who) VALUES ('fast')")
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            slow.execute("COMMIT")
            slow.close()

    monkeypatch.setattr(time, "sleep", sleep)
    with closing(reader):
        found, _ = everything(reader, reader.initial())

    assert found == [(1, "slow"), (2, "fast")]
    assert len(pauses) >= 3


def test_a_transaction_that_was_prepared_meanwhile_is_still_open() -> None:
    settling = Settling(delay_us=0)
    settling.see(2, frozenset({"3/7"}), 0)
    # While it is prepared, it may be listed under both names.
    settling.see(2, frozenset({"3/7", "prepared x"}), 1)
    settling.see(2, frozenset({"prepared x"}), 2)
    assert settling.settled is None, "its rows are not to be seen yet"

    settling.see(2, frozenset({"prepared later"}), 3)
    assert settling.settled == 2, "it waits for others"


def test_a_delay_covers_transactions_that_are_not_longer(mariadb: Mariadb) -> None:
    table = table_in(mariadb, "id BIGINT AUTO_INCREMENT PRIMARY KEY, who TEXT")
    clock = ManualClock()
    reader = reader_of(
        mariadb.url(), table=table, column="id", delay="10 seconds", clock=clock
    )
    with closing(reader), closing(mariadb.connect()) as slow:
        start = reader.initial()
        slow.begin()
        with slow.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} (who) VALUES ('slow')")
            mariadb.query(f"INSERT INTO {table} (who) VALUES ('fast')")
            assert everything(reader, start) == ([], start)
            clock.advance("9 seconds")
            assert everything(reader, start) == ([], start)
        slow.commit()
        clock.advance("1 second")

        assert everything(reader, start)[0] == [(1, "slow"), (2, "fast")]


def test_mysql_wants_to_know_how_long_transactions_are() -> None:
    with pytest.raises(InvalidConfigError, match="delay=") as caught:
        rl.sources.sql("mysql://u:s3cret@h/d", table="t", column="id")

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("BIGINT", ["1", "2", "3"]),
        ("DECIMAL(9,2)", ["1.10", "1.20", "1.30"]),
        ("VARCHAR(9)", ["'a'", "'b'", "'c'"]),
        ("DATE", ["'2026-01-01'", "'2026-01-02'", "'2026-01-03'"]),
        ("TIMESTAMP(6)", ["'2026-01-01'", "'2026-01-02'", "'2026-01-02 00:00:01.5'"]),
    ],
)
def test_a_row_of_a_server_that_is_added_behind_the_position_is_told(
    request: pytest.FixtureRequest, name: str, kind: str, values: list[str]
) -> None:
    server: Postgres | Mariadb = request.getfixturevalue(name)
    table = table_in(server, f"c {kind} PRIMARY KEY")
    for value in values:
        server.query(f"INSERT INTO {table} VALUES ({value})")
    delay = "0 seconds" if name == "mariadb" else None
    with closing(
        reader_of(server.url(), table=table, column="c", delay=delay)
    ) as reader:
        found, position = settled(reader, reader.initial())
        assert len(found) == 3
        assert everything(reader, position) == ([], position)
        server.query(f"DELETE FROM {table} WHERE c > {values[0]}")
        assert everything(reader, position) == ([], position)
        server.query(f"INSERT INTO {table} VALUES ({values[1]})")

        with pytest.raises(SourceError, match=r"a row with c = .* was added"):
            everything(reader, position)


def test_equal_values_stay_together_and_each_row_is_read_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    monkeypatch.setattr(module, "_LEAST_ROWS", 3)
    url = sqlite(file, "CREATE TABLE t (at INTEGER, who TEXT)")
    reader = reader_of(url, table="t", column="at")
    expected, found, now = [], [], 0
    with closing(reader):
        position = reader.initial()
        for _ in range(40):
            new = []
            for _ in range(draw.randrange(6)):
                now += draw.choice((0, 0, 1, 3))
                new.append((now, f"{draw.randrange(100)}"))
            if new:
                sqlite(file, "INSERT INTO t VALUES (?, ?)", rows=new)
            expected += new
            limit = draw.randrange(1, 8)
            end = reader.advance(position, reader.latest(position), limit)
            if end != position:
                some = rows_of(reader, position, end, tasks=draw.randrange(1, 4))
                ties = sum(at == end["value"] for at, _ in some)
                assert len(some) <= limit + ties - 1, "more than ties need"
                found += some
                position = end
        # The greatest value waits for a greater one.
        sqlite(file, "INSERT INTO t VALUES (1000, 'end')")
        found += everything(reader, position)[0]

    assert sorted(found) == sorted(expected)
    assert [at for at, _ in found] == sorted(at for at, _ in expected)


def test_rows_that_only_bytes_tell_apart_have_one_order(
    mariadb: Mariadb, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAST_ROWS", 3)
    columns = "(at INT, who VARCHAR(9) COLLATE {})"
    rows = [(1, "a"), (1, "A"), (1, "a "), (2, "b"), (3, "B"), (4, "c")]
    found = []
    for number, some in enumerate((rows, rows[::-1])):
        name = table_in(mariadb, columns.format("utf8mb4_general_ci")[1:-1])
        for row in some:
            mariadb.query(f"INSERT INTO {name} VALUES (%s, %s)", *row)
        url = sqlite(
            file.with_name(f"{number}.db"),
            f"CREATE TABLE {name} {columns.format('NOCASE')}",
            f"INSERT INTO {name} VALUES (?, ?)",
            rows=some,
        )
        for place in (mariadb.url(), url):
            reader = reader_of(place, table=name, column="at", delay="0 seconds")
            with closing(reader):
                start = reader.initial()
                end = reader.advance(start, reader.latest(start), 100)
                found.append(rows_of(reader, start, end, tasks=2))

    assert found == [[(1, "A"), (1, "a"), (1, "a "), (2, "b"), (3, "B")]] * 4


def test_a_range_that_has_changed_is_noticed_and_planned_anew(file: Path) -> None:
    rows = [(n, "x") for n in range(0, 20, 2)]
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY, who TEXT)"
    url = sqlite(file, table, "INSERT INTO t VALUES (?, ?)", rows=rows)
    with closing(reader_of(url, table="t", column="id")) as reader:
        start = reader.initial()
        end = reader.advance(start, reader.latest(start), 8)
        sqlite(file, "INSERT INTO t VALUES (5, 'late')")

        with pytest.raises(EpochAbortedError, match="8 rows has 9 now"):
            rows_of(reader, start, end)

        end = reader.advance(start, reader.latest(start), 8)
        assert [i for i, _ in rows_of(reader, start, end)] == [0, 2, 4, 5, 6, 8, 10, 12]


def test_pieces_notice_changes_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_ROWS", 3)
    rows = [(n, "x") for n in range(12)]
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY, who TEXT)"
    url = sqlite(file, table, "INSERT INTO t VALUES (?, ?)", rows=rows)
    with closing(reader_of(url, table="t", column="id")) as reader:
        start = reader.initial()
        end = reader.advance(start, reader.latest(start), 100)
        sizes = [p.rows for p in reader.pieces(start, end, 4)]
        sqlite(file, "DELETE FROM t WHERE id = 5")

        with pytest.raises(EpochAbortedError, match="12 rows has 11 now"):
            reader.pieces(start, end, 4)

    assert sizes == [3, 3, 3, 3]


def test_a_null_in_the_column_is_loud(file: Path) -> None:
    url = sqlite(file, "CREATE TABLE t (at INTEGER)", "INSERT INTO t VALUES (NULL)")
    reader = reader_of(url, table="t", column="at")
    with closing(reader), pytest.raises(SourceError, match="'at' is null in a row"):
        reader.latest(reader.initial())


def test_a_query_is_taken_as_it_is(file: Path) -> None:
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT)"
    rows = [(n, f"2026-01-01 00:00:0{n}") for n in range(1, 6)]
    url = sqlite(file, table, "INSERT INTO t VALUES (?, ?)", rows=rows)
    reader = reader_of(
        url,
        query="SELECT id, at, strftime('%s', at) AS s FROM t WHERE at LIKE '%:0%' -- ?",
        schema="id bigint, at timestamp, s string",
        column="id",
        unique=True,
        after=3,
    )
    with closing(reader):
        found, _ = everything(reader, reader.initial())

    assert found == [
        (n, datetime(2026, 1, 1, 0, 0, n, tzinfo=UTC), str(1767225600 + n))
        for n in (4, 5)
    ]


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_query_of_a_server_is_looked_at_before_anything_is_read(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: Postgres | Mariadb = request.getfixturevalue(kind)
    table = table_in(server, "id INT PRIMARY KEY, note VARCHAR(9)")
    server.query(f"INSERT INTO {table} VALUES (7, '50%')")
    of: dict[str, Any] = {"column": "id", "delay": "0 seconds", "unique": True}
    query = f"SELECT id, note FROM {table} WHERE note LIKE '%\\%' -- ?"

    with closing(
        reader_of(server.url(), query=query, schema="id int, note string", **of)
    ) as reader:
        assert everything(reader, reader.initial())[0] == [(7, "50%")]
    other = reader_of(server.url(), query=query, schema="id int, x int", **of)
    with closing(other), pytest.raises(InvalidFlowError, match="query: id, note"):
        other.initial()
    gone = reader_of(server.url(), query="SELECT id FROM gone", schema="id int", **of)
    with closing(gone), pytest.raises(SourceError, match="gone") as caught:
        gone.initial()
    assert not isinstance(caught.value, SourceUnavailableError)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_table_of_a_server_is_waited_for_if_asked(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: Postgres | Mariadb = request.getfixturevalue(kind)
    name = f"late_{uuid.uuid4().hex[:8]}"
    of: dict[str, Any] = {"table": name, "column": "id", "delay": "0 seconds"}

    with closing(reader_of(server.url(), missing="wait", **of)) as reader:
        with pytest.raises(SourceUnavailableError, match=f"no table {name}"):
            reader.initial()
        server.query(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        begin = reader.initial()
        assert (begin["value"], begin["rows"]) == (None, 0)


def test_what_is_not_there_is_told_before_anything_is_read(file: Path) -> None:
    url = sqlite(file, "CREATE TABLE t (id INTEGER PRIMARY KEY, odd, price REAL)")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"table": "u", "column": "id"}, "a table u"),
        ({"table": "t", "column": "at"}, "one of t: id, odd, price"),
        ({"table": "t", "column": "id"}, "a declared type"),
        ({"table": "t", "column": "price", "schema": "price double"}, "whole number"),
    ]
    for of, said in cases:
        reader = reader_of(url, **of)
        with closing(reader), pytest.raises(InvalidFlowError, match=said):
            reader.initial()
    with (
        closing(
            reader_of(url, query="SELECT nonsense", schema="id int", column="id")
        ) as reader,
        pytest.raises(SourceError, match="nonsense"),
    ):
        reader.latest(reader.initial())


@pytest.mark.parametrize(
    "wrong",
    [
        {"column": "id"},
        {"column": "id", "table": "t", "query": "SELECT 1"},
        {"column": "id", "query": "SELECT 1"},
        {"column": "id", "table": "t", "schema": "at timestamp"},
        {"column": "id", "table": "t", "schema": "id int, a array<int>"},
        {"column": "id", "table": "t", "after": 1.5},
        {"column": "at", "table": "t", "after": date(2026, 1, 1)},
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError):
        rl.sources.sql("sqlite:///x.db", **wrong)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_database_that_is_away_is_said_to_be_away(scheme: str) -> None:
    url = f"{scheme}://flow:s3cret@127.0.0.1:9/none"
    reader = reader_of(url, table="t", column="id", delay="0 seconds")
    with closing(reader), pytest.raises(SourceUnavailableError) as caught:
        reader.initial()

    assert "127.0.0.1:9" in str(caught.value)
    assert "s3cret" not in str(caught.value) + repr(reader._source)


def test_a_line_that_was_cut_is_opened_again(postgres: Postgres) -> None:
    table = table_in(postgres, "id INT PRIMARY KEY")
    with closing(reader_of(postgres.url(), table=table, column="id")) as reader:
        start = reader.initial()
        postgres.query(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE application_name = 'riverlock'"
        )
        postgres.query(f"INSERT INTO {table} VALUES (1)")

        assert settled(reader, start)[0] == [(1,)]


AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
PLAIN = AT.replace(tzinfo=None)
WHOLE = (2**31 - 1, 2**63 - 1)


def test_types_of_postgres(postgres: Postgres) -> None:
    table = table_in(
        postgres,
        "id NUMERIC(20,2), b BOOLEAN, s SMALLINT, i INT, l BIGINT, r REAL,"
        " d DOUBLE PRECISION, n NUMERIC, t TEXT, v VARCHAR(9), u UUID, j JSONB,"
        " x BYTEA, day DATE, at TIMESTAMPTZ, plain TIMESTAMP, a INT[],"
        " huge NUMERIC(50,1)",
    )
    some = uuid.UUID(int=7)
    values = (Decimal("1.50"), True, 7, *WHOLE, 0.5, 0.1, Decimal("1.5"), "é", "v")
    more = (str(some), '{"k": 1}', b"\0x", AT.date(), AT, PLAIN, [1, 2], 9)
    marks = ", ".join(["%s"] * 18)
    postgres.query(f"INSERT INTO {table} VALUES ({marks})", *values, *more)
    postgres.query(f"INSERT INTO {table} (id) VALUES (2)")
    postgres.query(f"INSERT INTO {table} (id) VALUES (3)")
    with closing(reader_of(postgres.url(), table=table, column="id")) as reader:
        found, end = settled(reader, reader.initial())

    assert found == [
        (
            *values[:7],
            Decimal("1.5"),
            *values[8:],
            *more[:6],
            "{1,2}",
            "9.0",
        ),
        (Decimal("2.00"), *[None] * 17),
    ]
    assert end["value"] == {"decimal": "2.00"}


def test_numbers_of_any_database_are_cut_into_pieces(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAST_ROWS", 3)
    table = table_in(postgres, "id UUID PRIMARY KEY")
    numbers = [str(uuid.UUID(int=n << 64)) for n in range(1, 9)]
    for number in numbers:
        postgres.query(f"INSERT INTO {table} VALUES (%s)", number)
    reader = reader_of(postgres.url(), table=table, column="id", delay="0 seconds")
    with closing(reader):
        start = reader.initial()
        end = reader.advance(start, reader.latest(start), 100)

        assert rows_of(reader, start, end, tasks=4) == [(n,) for n in numbers]
        assert [p.rows for p in reader.pieces(start, end, 4)] == [3, 3, 2]


def test_types_of_mariadb(mariadb: Mariadb) -> None:
    table = table_in(
        mariadb,
        "at DATETIME(6) PRIMARY KEY, b TINYINT, i INT, l BIGINT, lu BIGINT UNSIGNED,"
        " iu INT UNSIGNED, d DOUBLE, n DECIMAL(10,2), t TEXT, j JSON, x BLOB, day DATE,"
        " ts TIMESTAMP(6) NULL, clock TIME, f FLOAT, e ENUM('z', 'a')",
    )
    values = (PLAIN, 7, *WHOLE, 2**64 - 1, 2**32 - 1, 0.1, Decimal("1.50"), "é")
    more = ('{"k": 1}', b"\0x", PLAIN.date(), PLAIN, "10:11:12", 16777215, "z")
    marks = ", ".join(["%s"] * 16)
    mariadb.query(f"INSERT INTO {table} VALUES ({marks})", *values, *more)
    reader = reader_of(mariadb.url(), table=table, column="at", delay="0 seconds")
    with closing(reader):
        found, end = everything(reader, reader.initial())

    assert found == [(*values, *more[:3], AT, *more[4:])]
    assert end["value"] == {"timestamp_ntz": PLAIN.isoformat()}
    # The server sorts it by number, and compares it as text.
    odd = reader_of(mariadb.url(), table=table, column="e", delay="0 seconds")
    with closing(odd), pytest.raises(InvalidFlowError, match="enum"):
        odd.initial()


def test_values_of_another_type_are_told_by_column(file: Path) -> None:
    table = (
        "CREATE TABLE t"
        " (id INTEGER PRIMARY KEY, n DECIMAL(5,2), b BOOLEAN, at DATETIME, day DATE)"
    )
    row = "1, 1.25, 1, '2026-01-02 03:04:05.678901', '2026-01-02'"
    url = sqlite(file, table, f"INSERT INTO t VALUES ({row})")
    with closing(reader_of(url, table="t", column="id")) as reader:
        found, end = everything(reader, reader.initial())
        assert found == [(1, Decimal("1.25"), True, PLAIN, PLAIN.date())]
        for wrong, name in [
            ("1.234, 0, NULL, NULL", "'n'"),
            ("0, 7, NULL, NULL", "'b'"),
            ("0, 0, 1767323045, NULL", "'at'"),
            ("0, 0, NULL, 20455", "'day'"),
        ]:
            sqlite(file, f"INSERT OR REPLACE INTO t VALUES (2, {wrong})")
            with pytest.raises(SourceError, match=f"column {name} has a value"):
                everything(reader, end)


@given(
    st.integers()
    | st.text()
    | st.dates()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
)
def test_offsets_carry_values_as_they_are(value: Any) -> None:
    import msgspec

    assert decoded(msgspec.json.decode(msgspec.json.encode(encoded(value)))) == value
