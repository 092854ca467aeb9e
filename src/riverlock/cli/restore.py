"""``riverlock restore``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from riverlock.cli import text
from riverlock.cli.command import command
from riverlock.cli.confirmation import agreed, dry_run_option, yes_option

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import Manifest
    from riverlock.snapshot.timeline import Span
    from riverlock.snapshot.verbs.restore import Restore

__all__ = ["facts_of", "lines_of", "restore"]


@command("restore")
@click.argument("address", metavar="STORE@EPOCH|NAME")
@click.option(
    "--keep-output",
    is_flag=True,
    help="Leave the output of file sinks where readers see it.",
)
@click.option(
    "--region", help="Go back with this region alone, if no other has read its rows."
)
@dry_run_option
@yes_option
def restore(  # noqa: PLR0913 - the options of the command
    *,
    address: str,
    keep_output: bool,
    region: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    r"""Go back to an epoch: its state, input positions, timers and watermarks.

    This makes a new epoch with the state of the old one. Epochs between stay, and you
    can go to them. The next run reads the inputs again from there. The plan says for
    each sink what happens to its output. Stop the flow first. Of a flow with several
    regions all go back to the snapshot of that name, and it may run: each region goes
    back when it plans its next epoch, and goes on.

    \b
    Examples:
      riverlock restore store@before-upgrade
      riverlock restore store@41 --keep-output --yes
    """
    from riverlock.snapshot.address import open_region, open_store, split_address
    from riverlock.snapshot.claims import check_stopped
    from riverlock.snapshot.verbs.restore import plan_restore
    from riverlock.snapshot.verbs.restore_alone import check_alone
    from riverlock.stores import go_back

    store, at = split_address(address)
    if region is None and len(open_store(store).regions()) > 1:
        how = {"yes": yes, "dry_run": dry_run, "as_json": as_json}
        _restore_all(store, at or "", keep_output=keep_output, how=how)
        return
    catalog, target = open_region(address, region)
    check_alone(catalog, target)
    plan = plan_restore(catalog, target, keep_output=keep_output)
    if plan.is_done:
        if not dry_run:
            go_back(catalog, plan)  # what a crash left to do
        _done(plan, plan.newest, as_json=as_json)
        return
    if not dry_run:
        check_stopped(catalog)
    how = {"yes": yes, "dry_run": dry_run, "as_json": as_json}
    if agreed(facts_of(plan), lines_of(plan), **how):
        _done(plan, go_back(catalog, plan), as_json=as_json)


def _restore_all(
    store: str, name: str, *, keep_output: bool, how: dict[str, bool]
) -> None:
    """Go back with all regions of a flow."""
    from riverlock.snapshot.address import open_store
    from riverlock.snapshot.verbs.restore_all import plan_restore_all
    from riverlock.stores import restore_all

    catalog = open_store(store)
    plan = plan_restore_all(catalog, name, keep_output=keep_output)
    facts = {region: facts_of(part) for region, part in plan.parts.items()}
    lines = {
        f"{region}: {what}": said
        for region, part in plan.parts.items()
        for what, said in lines_of(part).items()
    }
    if not plan.is_done and not agreed(facts, lines, **how):
        return
    waiting = restore_all(f"{store}@{name}", keep_output=keep_output).waiting
    if how["as_json"]:
        found = {"done": True, "name": name, "plan": facts, "waiting": list(waiting)}
        text.print_json(found)
        return
    back = [region for region in plan.parts if region not in waiting]
    which = "regions" if waiting else "all regions"
    click.echo(f"{which} are back at {name!r}: {', '.join(back) or 'none yet'}")
    if waiting:
        click.echo(
            f"decided, and not taken up yet by {', '.join(waiting)}: each goes back"
            " when it plans its next epoch or starts; nobody else waits for that"
        )


def _done(plan: Restore, made: Manifest, *, as_json: bool) -> None:
    if as_json:
        text.print_json({"done": True, "epoch": made.epoch, "plan": facts_of(plan)})
        return
    click.echo(f"epoch {made.epoch} is the newest, with the state of {_target(plan)}")


def _target(plan: Restore) -> str:
    decided = text.instant(plan.target.decided_us)
    return f"epoch {plan.target.epoch}, decided {decided}"


def facts_of(plan: Restore) -> dict[str, Any]:
    """Return a plan for programs."""
    return {
        "target": plan.target.epoch,
        "newest": plan.newest.epoch,
        "epoch": plan.epoch,
        "undone": plan.undone,
        "redone": plan.redone,
        "open": plan.is_open,
        "inputs": {
            uid: {"to": r.end, "from": plan.newest.inputs[uid].end}
            for uid, r in plan.target.inputs.items()
            if uid in plan.newest.inputs
        },
        "sinks": {
            s.uid: {"kind": s.kind, "rows": s.rows, "withdrawn": s.is_withdrawn}
            for s in plan.sinks
        },
    }


def lines_of(plan: Restore) -> dict[str, str]:
    """Return a plan for people."""
    lines = {
        "goes back to": _target(plan),
        "as new epoch": str(plan.epoch),
        "undone": f"epochs {_spans(plan.undone)}; they stay, and can be gone to",
    }
    if plan.redone:
        lines["done again"] = f"epochs {_spans(plan.redone)}"
    lines["state"] = f"{_entries(plan.newest)} entries become {_entries(plan.target)}"
    for uid, input_range in plan.target.inputs.items():
        at = msgspec.json.encode(input_range.end).decode()
        lines[f"input {uid}"] = f"is read again from {at}"
    if plan.is_open:
        lines["output"] = (
            f"of epoch {plan.newest.epoch} may not be in all sinks yet; what is not,"
            " never will be"
        )
    for sink in plan.sinks:
        lines[f"sink {sink.uid} ({sink.kind})"] = sink.says
    return lines


def _spans(spans: tuple[Span, ...]) -> str:
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in spans)


def _entries(manifest: Manifest) -> str:
    return text.count(sum(s.entries for s in manifest.operators.values()))
