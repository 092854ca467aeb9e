"""Commands that change a store first show what they will do, and ask."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["agreed", "dry_run_option", "yes_option"]

yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask; still show the plan."
)

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show the plan.")


def agreed(plan: Mapping[str, Any], lines: Mapping[str, str], **how: bool) -> bool:
    """Show a plan; return whether to carry it out.

    With ``--json`` and without ``--yes`` the plan is printed and nothing is done; with
    ``--dry-run`` never.

    Args:
        plan: The plan for programs.
        lines: The plan for people.
        how: The options ``yes``, ``dry_run`` and ``as_json``.
    """
    yes, is_dry = how["yes"], how["dry_run"]
    if how["as_json"]:
        if is_dry or not yes:
            text.print_json({"done": False, "plan": plan})
        return yes and not is_dry
    text.facts(lines)
    if is_dry:
        click.echo("nothing was changed")
        return False
    if yes:
        return True
    if sys.stdin.isatty():
        return click.confirm("do it?", default=False)
    click.echo("nothing was changed; use --yes to do it")
    return False
