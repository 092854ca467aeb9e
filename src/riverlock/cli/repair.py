"""``riverlock repair``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument
from riverlock.cli.confirmation import agreed, dry_run_option, yes_option
from riverlock.cli.restore import facts_of, lines_of

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.verbs.repair import Repair
    from riverlock.snapshot.verbs.repair_all import RepairAll

__all__ = ["repair"]


@command("repair")
@store_argument
@dry_run_option
@yes_option
def repair(*, store: str, dry_run: bool, yes: bool, as_json: bool) -> int:
    r"""Go back to the newest whole epoch, and move damaged files aside.

    Nothing is deleted: damaged and foreign files, and epochs that cannot be used, are
    moved to quarantine/ of the store. Stop the flow first. Of a flow with several
    regions those go back that have to, to epochs that fit together.

    \b
    Examples:
      riverlock repair store --dry-run
      riverlock repair store --yes --json
    """
    from riverlock.snapshot.format.records import REGIONS_FEATURE
    from riverlock.snapshot.verbs.repair import plan_repair
    from riverlock.stores import mend

    catalog = open_catalog(store)
    if REGIONS_FEATURE in catalog.flow().features:
        how = {"yes": yes, "dry_run": dry_run, "as_json": as_json}
        return _repair_all(catalog, how)
    plan = plan_repair(catalog)
    left = 3 if plan.left else 0
    if not plan.is_needed:
        if as_json:
            text.print_json({"done": False, "plan": _facts(plan)})
        else:
            click.echo("nothing to repair")
            _warn(plan)
        return left
    how = {"yes": yes, "dry_run": dry_run, "as_json": as_json}
    if not agreed(_facts(plan), _lines(plan), **how):
        return left
    folder = mend(catalog, plan)
    if as_json:
        text.print_json({"done": True, "quarantine": folder, "plan": _facts(plan)})
        return left
    _done(plan, folder)
    return left


def _repair_all(catalog: Catalog, how: dict[str, bool]) -> int:
    """Repair all regions of a flow."""
    from riverlock.snapshot.verbs.repair_all import plan_repair_all
    from riverlock.stores import mend_all

    plan = plan_repair_all(catalog)
    left = 3 if plan.left else 0
    facts = {
        "restore": {region: facts_of(part) for region, part in plan.back.items()},
        "why": plan.why,
        "lost": plan.lost,
        "moved": plan.moved,
        "left": [{"path": d.path, "affects": d.affects} for d in plan.left],
    }
    if not plan.is_needed:
        if how["as_json"]:
            text.print_json({"done": False, "plan": facts})
        else:
            click.echo("nothing to repair")
            _warn(plan)
        return left
    lines = {}
    for region, part in plan.back.items():
        lines[f"{region}: since"] = plan.why[region]
        lines |= {f"{region}: {what}": said for what, said in lines_of(part).items()}
    for region, epochs in plan.lost.items():
        lines[f"{region}: lost epochs"] = ", ".join(map(str, epochs))
    lines["moved aside"] = "\n".join(plan.moved) or "nothing"
    if not agreed(facts, lines, **how):
        return left
    folder = mend_all(catalog, plan)
    if how["as_json"]:
        text.print_json({"done": True, "quarantine": folder, "plan": facts})
        return left
    _done(plan, folder)
    return left


def _done(plan: Repair | RepairAll, folder: str | None) -> None:
    moved = text.counted(len(plan.moved), "file")
    click.echo(f"{moved} moved to {folder}; see: riverlock verify")
    _warn(plan)


def _warn(plan: Repair | RepairAll) -> None:
    for damage in plan.left:
        click.echo(f"cannot be repaired: {damage.problem}", err=True)
        click.echo(f"  affects {damage.affects}", err=True)


def _facts(plan: Repair) -> dict[str, Any]:
    return {
        "restore": None if plan.restore is None else facts_of(plan.restore),
        "lost": plan.lost,
        "moved": plan.moved,
        "left": [{"path": d.path, "affects": d.affects} for d in plan.left],
    }


def _lines(plan: Repair) -> dict[str, str]:
    lines = {} if plan.restore is None else lines_of(plan.restore)
    if plan.lost:
        lines["lost epochs"] = ", ".join(map(str, plan.lost))
    lines["moved aside"] = "\n".join(plan.moved) or "nothing"
    return lines
