"""``riverlock verify``."""

from __future__ import annotations

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument

__all__ = ["verify"]


@command("verify")
@store_argument
def verify(*, store: str, as_json: bool) -> int:
    r"""Check that every epoch that is kept is whole: files there, checksums right.

    Reads all of the state. Exits with 3 if something is damaged, and names the files
    and the newest epoch that is whole. Changes nothing.

    \b
    Examples:
      riverlock verify store
      riverlock verify store --json | jq .newest_whole
    """
    from riverlock.snapshot.verify import verify as check_all

    reports = list(check_all(open_catalog(store)))
    whole = [r.epoch for r in reports if r.is_whole]
    damaged = [r for r in reports if not r.is_whole]
    problems = list(dict.fromkeys(p for r in damaged for p in r.problems))
    newest = whole[-1] if whole else None
    if as_json:
        text.print_json(
            {
                "whole": not damaged,
                "newest_whole": newest,
                "problems": problems,
                "epochs": [
                    {
                        "epoch": r.epoch,
                        "whole": r.is_whole,
                        "files": r.files,
                        "bytes": r.bytes,
                        "problems": r.problems,
                    }
                    for r in reports
                ],
            }
        )
        return 3 if damaged else 0
    if not reports:
        click.echo("no epoch yet: nothing to verify")
        return 0
    if not damaged:
        last = reports[-1]
        click.echo(
            f"{_epochs(whole)} whole; the newest, {last.epoch}, refers to"
            f" {last.files} files, {text.size(last.bytes)}"
        )
        return 0
    _complain(problems, [r.epoch for r in damaged], newest)
    return 3


def _epochs(epochs: list[int]) -> str:
    if len(epochs) == 1:
        return f"epoch {epochs[0]} is"
    return f"all {len(epochs)} epochs, {epochs[0]} to {epochs[-1]}, are"


def _complain(problems: list[str], damaged: list[int], newest: int | None) -> None:
    numbers = ", ".join(map(str, damaged))
    click.echo(
        click.style("damaged: ", fg="red", bold=True) + f"epochs {numbers}", err=True
    )
    for problem in problems:
        click.echo(f"  {problem}", err=True)
    if newest is None:
        click.echo("no epoch that is kept is whole", err=True)
        return
    click.echo(f"the newest whole epoch is {newest}; nothing was changed", err=True)
    click.echo(
        f"  next  keep it: riverlock snapshot STORE NAME --at {newest}", err=True
    )
