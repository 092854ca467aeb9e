"""``riverlock export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from riverlock.cli import text
from riverlock.cli.command import command
from riverlock.cli.places import open_snapshot, place_argument

if TYPE_CHECKING:
    from riverlock.query.export import Format

__all__ = ["export"]


@command("export")
@place_argument
@click.argument(
    "directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path)
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    help="Plain Parquet (default), or Delta tables: pip install 'riverlock[delta]'.",
)
def export(*, place: str, directory: Path, kind: Format, as_json: bool) -> None:
    r"""Write a snapshot as tables that other tools can read.

    Each operator becomes a table DIR/OPERATOR with a row per key. Its timers, and state
    that is not kept by key, become tables DIR/OPERATOR.STATE. Nothing is overwritten.

    \b
    Examples:
      riverlock export store out
      riverlock export store@v1 out --format delta
    """
    from riverlock.query.export import export as write

    _, snapshot = open_snapshot(place)
    made = write(snapshot, directory, kind)
    if as_json:
        tables = [{"name": t.name, "path": str(t.path), "rows": t.rows} for t in made]
        text.print_json({"epoch": snapshot.epoch, "tables": tables})
        return
    click.echo(f"epoch {snapshot.epoch}")
    text.table(("table", "rows"), [(str(t.path), t.rows) for t in made])
