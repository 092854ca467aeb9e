"""``riverlock diff``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import command

if TYPE_CHECKING:
    from riverlock.snapshot.verbs.diff import Change, Diff

__all__ = ["diff"]


@command("diff")
@click.argument("before", metavar="STORE@A")
@click.argument("after", metavar="STORE@B")
@click.option("--operator", metavar="UID", help="Only this operator.")
@click.option("--full", is_flag=True, help="Show each value before and after.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    help="Changes to show; default 50.",
)
def diff(  # noqa: PLR0913 - the options of the command
    *,
    before: str,
    after: str,
    operator: str | None,
    full: bool,
    limit: int,
    as_json: bool,
) -> None:
    r"""Show what differs between two epochs: keys added, removed and changed.

    Both may be of one store, or of a fork and its parent. Files that both have are not
    compared. Exit with 0, whether or not there are differences.

    \b
    Examples:
      riverlock diff store@41 store@42
      riverlock diff store@before-upgrade trial --full --json
    """
    from riverlock.stores import diff as compare

    found = compare(before, after, operator=operator)
    summary, changes = found.summary(), found.changes
    if as_json:
        text.print_json(_facts(found, summary, changes if full else None))
        return
    _show(found, summary)
    if full and changes:
        click.echo()
        text.table(
            ("operator", "state", "key", "part", "change", "before", "after"),
            [_row(c) for c in changes[:limit]],
        )
        if len(changes) > limit:
            more = text.count(len(changes) - limit)
            click.echo(f"... {more} more; --limit N shows more, --json shows all")


def _facts(
    found: Diff, summary: dict[str, Any], changes: tuple[Change, ...] | None
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "operators": summary,
        "operators_added": found.operators_added,
        "operators_removed": found.operators_removed,
        "files_read": found.files_read,
        "files_skipped": found.files_skipped,
    }
    if changes is not None:
        facts["changes"] = [asdict(c) for c in changes]
    return facts


def _show(found: Diff, summary: dict[str, Any]) -> None:
    for word, uids in (
        ("added", found.operators_added),
        ("removed", found.operators_removed),
    ):
        if uids:
            click.echo(f"operators {word}: {', '.join(uids)}")
    if not summary:
        click.echo("no state differs")
        return
    text.table(
        ("operator", "state", "keys added", "removed", "changed"),
        [
            [uid, name, n["added"], n["removed"], n["changed"]]
            for uid, variables in summary.items()
            for name, n in variables.items()
        ],
    )


def _row(change: Change) -> list[str]:
    key = change.key
    if key is None:
        shown = "everyone" if change.key_group is None else f"group {change.key_group}"
    else:
        shown = ", ".join(text.value(v) for v in key.values())
    part = "" if change.part is None else text.value(change.part)
    before = "" if change.before is None else text.value(change.before)
    after = "" if change.after is None else text.value(change.after)
    return [change.operator, change.variable, shown, part, change.kind, before, after]
