"""Commands that change a store show what they will do first, and ask."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["agreed", "yes_option"]

yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Do it without asking; the plan is still shown."
)


def agreed(plan: Mapping[str, Any], lines: Mapping[str, str], **how: bool) -> bool:
    """Show a plan; return whether it is to be carried out.

    With ``--json`` and without ``--yes`` the plan is printed and nothing is done.

    Args:
        plan: The plan for programs.
        lines: The plan for people.
        how: ``yes`` and ``as_json`` as given.
    """
    if how["as_json"]:
        if not how["yes"]:
            text.print_json({"done": False, "plan": plan})
        return how["yes"]
    text.facts(lines)
    if how["yes"]:
        return True
    if sys.stdin.isatty():
        return click.confirm("do it?", default=False)
    click.echo("nothing was changed; --yes does it")
    return False
