"""SQL over a snapshot, with DuckDB: a view per operator and per state variable."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidConfigError, RiverlockError
from riverlock.core.extras import load_extra
from riverlock.query.channel_rows import channel_names, open_channel, segments
from riverlock.query.in_flight import in_flight_rows, in_flight_spans
from riverlock.query.listings import AllTimers, epochs
from riverlock.query.views import TIMERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import pyarrow as pa

    from riverlock.query.rows import Rows
    from riverlock.query.snapshot import Snapshot
    from riverlock.snapshot.catalog import Catalog

__all__ = ["SqlView", "run_sql", "sql_views"]

MAIN = "main"
_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlView:
    """A view that queries can name.

    Attributes:
        schema: The operator of a state variable, ``channels``, or ``main``.
        name: Its name there.
        rows: What it shows.
    """

    schema: str
    name: str
    rows: Rows

    @property
    def sql(self) -> str:
        """How a query names it; a reserved word also needs double quotes."""
        names = [self.name] if self.schema == MAIN else [self.schema, self.name]
        return ".".join(n if _PLAIN.fullmatch(n) else _quoted(n) for n in names)


def sql_views(catalog: Catalog, snapshot: Snapshot) -> list[SqlView]:
    """Return the views of a snapshot; no state is read yet.

    An operator with the name of a listing hides the listing.
    """
    storage, flying, found = catalog.storage, in_flight_rows(snapshot), []
    for uid, variables in snapshot.operators.items():
        found.append(SqlView(schema=MAIN, name=uid, rows=snapshot.state(uid)))
        found += [
            SqlView(schema=uid, name=name, rows=snapshot.state(uid, name))
            for name in dict.fromkeys((*variables, TIMERS))
        ]
    listings: dict[str, Rows] = {
        "timers": AllTimers(snapshot),
        "epochs": epochs(catalog),
        "channels": segments(storage),
        "in_flight": in_flight_spans(flying),
    }
    found += [SqlView(schema=MAIN, name=n, rows=rows) for n, rows in listings.items()]
    found += [
        SqlView(schema="channels", name=name, rows=open_channel(storage, name))
        for name in channel_names(storage)
    ]
    found += [SqlView(schema="channels", name=n, rows=r) for n, r in flying.items()]
    # DuckDB's names have no case. The first of a name is the operator's.
    named = {(v.schema.lower(), v.name.lower()): v for v in reversed(found)}
    return [v for v in found if named[v.schema.lower(), v.name.lower()] is v]


def run_sql(views: list[SqlView], query: str) -> pa.Table:
    """Return the result of a query, which can reach nothing but the views.

    Raises:
        InvalidConfigError: DuckDB is not installed, or refuses the query.
        SnapshotCorruptedError: A file is missing or altered.
    """
    duckdb = _duckdb()
    watched = [_Watched(view.rows) for view in views]
    with _connected(duckdb, views, watched) as connection:
        try:
            result = connection.sql(query)
            # A statement that gives no rows, such as one that makes a table.
            return result if result is None else result.to_arrow_table()
        except duckdb.Error as error:
            for each in watched:
                if each.failure is not None:
                    raise each.failure from error
            raise InvalidConfigError(
                "the query",
                expected="DuckDB SQL over the views of the snapshot",
                found=str(error),
                hint="'riverlock sql STORE' without a query lists the views; put names"
                " that are reserved words or have other characters in double quotes",
            ) from error


@contextlib.contextmanager
def _connected(
    duckdb: ModuleType, views: list[SqlView], watched: list[_Watched]
) -> Iterator[Any]:
    with duckdb.connect() as connection:
        for number, (view, rows) in enumerate(zip(views, watched, strict=True)):
            given = f"__riverlock_{number}"
            connection.register(given, rows)
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(view.schema)}")
            connection.execute(f"CREATE VIEW {_full(view)} AS FROM {given}")
        for view in views:
            if view.schema != MAIN:
                # People quote "op.var" as a whole; a view of that name comes first.
                whole = SqlView(
                    schema=MAIN, name=f"{view.schema}.{view.name}", rows=view.rows
                )
                connection.execute(
                    f"CREATE VIEW IF NOT EXISTS {_full(whole)} AS FROM {_full(view)}"
                )
        # From here on no files, network, extensions or names of Python; no way back.
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def _full(view: SqlView) -> str:
    return f"{_quoted(view.schema)}.{_quoted(view.name)}"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _duckdb() -> Any:
    return load_extra("duckdb", extra="sql", needed_for="SQL over a snapshot")


class _Watched:
    """Rows that keep the error of reading them, since DuckDB turns it into text."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.failure: RiverlockError | None = None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self._rows.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows.batches()
        except RiverlockError as error:
            self.failure = error
            raise
