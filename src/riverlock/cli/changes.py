"""``riverlock changes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import command, store_argument
from riverlock.core.values.arrow_values import python_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["changes"]


@command("changes")
@store_argument
@click.argument("span", metavar="FROM..[TO]")
@click.argument("operator", required=False)
@click.argument("variable", metavar="[STATE]", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    help="Rows to show per operator; default 20.",
)
def changes(  # noqa: PLR0913 - the options of the command
    *,
    store: str,
    span: str,
    operator: str | None,
    variable: str | None,
    limit: int,
    as_json: bool,
) -> None:
    r"""Show how state changed from one epoch to another, epoch by epoch.

    FROM and TO are epochs or names; the changes of FROM itself are not included. TO is
    the newest epoch by default. If epochs between are no longer kept, the next kept
    epoch shows their changes. Without OPERATOR, show all operators. With STATE (a
    variable, or `timers`), show its rows; otherwise one row per key.

    \b
    Examples:
      riverlock changes store 41..42 velocity
      riverlock changes store before-upgrade.. velocity spent --json
    """
    from riverlock.query.opened_store import open_store

    first, dots, last = span.partition("..")
    if not first or not dots:
        raise click.UsageError(f"expected FROM..TO or FROM.., found {span!r}")
    found = open_store(store)
    since, until = found.at(first).epoch, found.at(last or None)
    uids = list(until.manifest.operators) if operator is None else [operator]
    tables = {
        uid: found.changes(uid, variable, since=since, until=until.epoch)
        .to_arrow()
        .sort_by("epoch")
        for uid in uids
    }
    if as_json:
        head = {"since": since, "until": until.epoch}
        pages = {uid: _page(table, limit) for uid, table in tables.items()}
        text.print_json({**head, "operators": pages})
        return
    for uid, table in tables.items():
        number = text.counted(table.num_rows, "change")
        click.echo(
            f"operator {uid}, after epoch {since}, until {until.epoch}: {number}"
        )
        page = table.slice(0, limit)
        if page.num_rows:
            text.table(page.column_names, [list(r.values()) for r in _rows(page)])
        if table.num_rows > limit:
            more = text.count(table.num_rows - limit)
            click.echo(f"... {more} more; --limit N shows more")


def _page(table: pa.Table, limit: int) -> dict[str, Any]:
    return {"count": table.num_rows, "rows": _rows(table.slice(0, limit))}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return python_rows(table, dicts=True)
