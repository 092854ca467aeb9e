"""Where rows were read from: values of one table say nothing about another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from riverlock.connectors.databases.reading.offsets import decoded
from riverlock.core.errors import SourceError
from riverlock.core.paths import last_directory

if TYPE_CHECKING:
    from riverlock.connectors.databases.address import Address
    from riverlock.connectors.databases.source import Sql

__all__ = ["check_same_table", "place_of_table"]

_FILE: Final = "sqlite:///"
_PORTS: Final = {"postgresql": 5432, "mysql": 3306}


def place_of_table(source: Sql) -> dict[str, Any]:
    """Return what an offset says of the place: no secrets, and no query."""
    place = {"database": _database(source.address)}
    return place if source.table is None else {**place, "table": source.table}


def _database(address: Address) -> str:
    """Return one text for all ways to write an address."""
    if address.dialect == "sqlite":
        return str(address)
    options = dict(address.options)
    host = address.host or options.get("host", "localhost")
    port = address.port or options.get("port", _PORTS[address.dialect])
    return f"{address.dialect}://{host}:{port}/{address.database}"


def check_same_table(source: Sql, uid: str, offset: Any) -> None:
    """Refuse to continue at another table, whose rows were not read so far.

    Another query is another program: only its database is compared.

    Raises:
        SourceError: It is another one; nothing was read.
    """
    is_begun = offset["rows"] or "until" in offset
    if not is_begun or "database" not in offset:
        return  # nothing was read, or by a version that did not say where
    here, meant = _database(source.address), str(offset["database"])
    if last_directory(source.address.given, meant.removeprefix(_FILE)) is not None:
        meant = here  # the same path, perhaps elsewhere: that is told by itself
    table = offset.get("table")
    if table is not None and source.table not in (None, table):
        here, meant = f"{here} {source.table}", f"{meant} {table}"
    if here == meant:
        return
    value = repr(decoded(offset["value"]))
    raise SourceError(
        uid,
        what=f"rows up to {source.column} = {value} were read from {meant}, and the"
        f" source is {here} now",
        hint=f"nothing was changed; name {meant} again; if it is the same table at a"
        f" new place, go on with another uid and after={value}; another table is"
        " another source: give it a uid of its own",
    )
