"""``riverlock verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument

if TYPE_CHECKING:
    from riverlock.snapshot.verbs.inspection import Inspection

__all__ = ["verify"]


@command("verify")
@store_argument
def verify(*, store: str, as_json: bool) -> int:
    r"""Check that all kept epochs are whole: files exist, checksums match.

    Reads all files and changes nothing. If something is damaged or missing, exit with 3
    and name the files, what they affect, and the newest whole epoch. Also name files
    that do not belong to a store.

    \b
    Examples:
      riverlock verify store
      riverlock verify store --json | jq .newest_whole
    """
    from riverlock.snapshot.verbs.inspection import inspect

    found = inspect(open_catalog(store))
    reports = found.epochs
    if as_json:
        text.print_json(_facts(found))
        return 0 if found.is_whole else 3
    if not found.is_whole:
        _complain(found)
    elif not reports:
        click.echo("no epoch yet: nothing to verify")
    else:
        last = reports[-1]
        click.echo(
            f"{_epochs([r.epoch for r in reports])} whole; the newest, {last.epoch},"
            f" refers to {text.counted(last.files, 'file')}, {text.size(last.bytes)}"
        )
    for path in found.foreign:
        click.echo(f"foreign: {path} does not belong to a store", err=True)
    return 0 if found.is_whole else 3


def _facts(found: Inspection) -> dict[str, Any]:
    problems = [p for r in found.epochs for p in r.problems]
    problems += [d.problem for d in found.damages]
    return {
        "whole": found.is_whole,
        "newest_whole": found.newest_whole,
        "problems": list(dict.fromkeys(problems)),
        "damaged": [
            {"path": d.path, "problem": d.problem, "affects": d.affects}
            for d in found.damages
        ],
        "foreign": found.foreign,
        "leftovers": found.leftovers,
        "epochs": [
            {
                "epoch": r.epoch,
                "whole": r.is_whole,
                "files": r.files,
                "bytes": r.bytes,
                "problems": r.problems,
            }
            for r in found.epochs
        ],
    }


def _epochs(epochs: list[int]) -> str:
    if len(epochs) == 1:
        return f"epoch {epochs[0]} is"
    return f"all {len(epochs)} epochs, {epochs[0]} to {epochs[-1]}, are"


def _complain(found: Inspection) -> None:
    damaged = [r.epoch for r in found.epochs if not r.is_whole]
    numbers = ", ".join(map(str, damaged))
    what = f"epochs {numbers}" if damaged else "no epoch, but other files"
    click.echo(click.style("damaged: ", fg="red", bold=True) + what, err=True)
    for damage in found.damages:
        click.echo(f"  {damage.problem}", err=True)
        click.echo(f"    affects {damage.affects}", err=True)
    if damaged and found.newest_whole is None:
        click.echo("no kept epoch is whole", err=True)
        return
    if damaged:
        click.echo(f"the newest whole epoch is {found.newest_whole}", err=True)
    click.echo("nothing was changed", err=True)
    click.echo("  next  see what a repair would do: riverlock repair STORE", err=True)
