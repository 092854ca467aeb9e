"""``riverlock sql``."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import command
from riverlock.cli.places import open_snapshot, place_argument
from riverlock.core.values.arrow_values import python_values

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.query.sql import SqlView

__all__ = ["sql"]


@command("sql")
@place_argument
@click.argument("query", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a heading.")
def sql(*, place: str, query: str | None, as_csv: bool, as_json: bool) -> None:
    r"""Query a snapshot with SQL.

    STORE@EPOCH and STORE@NAME query an earlier epoch. Every operator is a view with a
    row per key, every state variable a view with a row per entry; there are also
    `timers`, `epochs` and `channels`. Without QUERY, list the views with their columns.
    Needs DuckDB: pip install 'riverlock[sql]'. A query can read nothing but the
    snapshot.

    \b
    Examples:
      riverlock sql store "SELECT * FROM velocity ORDER BY spent DESC LIMIT 10"
      riverlock sql store@v1 "SELECT key, sum(value) FROM velocity.shops GROUP BY key"
    """
    from riverlock.query.sql import run_sql, sql_views

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    catalog, snapshot = open_snapshot(place)
    views = sql_views(catalog, snapshot)
    if query is None:
        _list(views, snapshot.epoch, as_json=as_json)
        return
    _show(run_sql(views, query), snapshot.epoch, as_csv=as_csv, as_json=as_json)


def _list(views: list[SqlView], epoch: int, *, as_json: bool) -> None:
    if as_json:
        text.print_json({"epoch": epoch, "views": {v.sql: _columns(v) for v in views}})
        return
    click.echo(f"epoch {epoch}")
    shown = [", ".join(f"{n} {t}" for n, t in _columns(v).items()) for v in views]
    rows = [(v.sql, columns) for v, columns in zip(views, shown, strict=True)]
    text.table(("view", "columns"), rows)


def _columns(view: SqlView) -> dict[str, str]:
    from riverlock.query.ddl import type_of_arrow

    return {f.name: type_of_arrow(f.type).ddl for f in view.rows.schema}


def _show(table: pa.Table | None, epoch: int, *, as_csv: bool, as_json: bool) -> None:
    if table is None:
        return
    names = table.column_names
    columns: list[list[Any]] = [
        python_values(c, far=str, dicts=True) for c in table.columns
    ]
    rows = list(zip(*columns, strict=True))
    if as_json:
        text.print_json({"epoch": epoch, "columns": names, "rows": rows})
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(c) for c in row] for row in rows)
    else:
        text.table(names, rows)


def _cell(found: object) -> object:
    """Return a value for CSV, where null is empty."""
    return None if found is None else text.value(found)
