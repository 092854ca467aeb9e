"""``riverlock fork`` and ``riverlock forks``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument
from riverlock.cli.confirmation import agreed, dry_run_option, yes_option

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import ForkRecord, Origin
    from riverlock.snapshot.verbs.fork import Fork

__all__ = ["fork", "forks"]


@command("fork")
@click.argument("address", metavar="STORE@EPOCH|NAME")
@click.argument("new", metavar="NEW")
@click.option(
    "--copy", is_flag=True, help="Copy the files, so that NEW needs no other store."
)
@dry_run_option
@yes_option
def fork(  # noqa: PLR0913 - the options of the command
    *, address: str, new: str, copy: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    r"""Make a NEW store that begins with the state and input positions of an epoch.

    From then on each store is independent; the flow may run meanwhile. Files are not
    copied: NEW refers to them, and they are kept as long as it does. Give the fork
    outputs of its own: an output directory belongs to one store.

    \b
    Examples:
      riverlock fork store@before-upgrade trial
      riverlock fork store@41 s3://bucket/trial --copy --yes
    """
    from riverlock.snapshot.address import open_cut
    from riverlock.snapshot.verbs.fork import fork as make
    from riverlock.snapshot.verbs.fork import plan_fork
    from riverlock.storage.open import open_storage

    catalog, targets = open_cut(address)
    plan = plan_fork(catalog, targets, open_storage(new), copy=copy)
    how = {"yes": yes, "dry_run": dry_run, "as_json": as_json}
    if not agreed(_facts(plan), _lines(plan), **how):
        return
    made = make(catalog, plan, now_us=text.now_us())
    if as_json:
        done = {"done": True, "flow": made.flow().id, "plan": _facts(plan)}
        text.print_json(done)
        return
    click.echo(f"{plan.store} begins with {_epochs(plan.origin)}")


def _facts(plan: Fork) -> dict[str, Any]:
    return {
        "epoch": plan.origin.epoch,
        "regions": plan.origin.epochs,
        "rows_in_flight": plan.rows_in_flight,
        "origin": plan.origin.store,
        "store": plan.store,
        "copy": plan.is_copy,
        "files": plan.files,
        "bytes": plan.bytes,
    }


def _lines(plan: Fork) -> dict[str, str]:
    size = f"{plan.files}, {text.size(plan.bytes)}"
    what = "are copied" if plan.is_copy else "stay where they are, and are kept for it"
    lines = {
        "forks": f"{_epochs(plan.origin)} of {plan.origin.store}",
        "into": plan.store,
        "files": f"{size}; they {what}",
        "sinks": "nothing is copied to them: give the fork outputs of its own",
    }
    if plan.between:
        lines["rows in flight"] = (
            f"{text.count(plan.rows_in_flight)}; the fork reads them"
        )
    return lines


def _epochs(origin: Origin) -> str:
    if not origin.regions:
        return f"epoch {origin.epoch}"
    each = (f"{region} {epoch}" for region, epoch in origin.regions.items())
    return f"epochs {', '.join(each)}"


@command("forks")
@store_argument
@click.option("--forget", metavar="ID", help="Forget a fork whose store was deleted.")
def forks(*, store: str, forget: str | None, as_json: bool) -> None:
    r"""List the forks that need files of a store; each keeps an epoch.

    A fork releases the epoch itself once it has compacted the files away. Use --forget
    for a fork whose store was deleted: if the store still existed, it would lose its
    state.

    \b
    Examples:
      riverlock forks store
      riverlock forks store --forget 0b9e8f3d4c5a4c6e9f0a1b2c3d4e5f60
    """
    from riverlock.snapshot.retention.pins import forks as all_forks
    from riverlock.snapshot.verbs.fork_parents import forget_fork

    catalog = open_catalog(store)
    if forget is not None:
        forget_fork(catalog, forget)
    found = list(all_forks(catalog))
    if as_json:
        text.print_json(
            [
                {
                    "flow": f.flow,
                    "store": f.store,
                    "epoch": f.epoch,
                    "regions": f.regions or {f.region: f.epoch},
                }
                for f in found
            ]
        )
        return
    if not found:
        click.echo("no fork needs files of this store")
        return
    now = text.now_us()
    text.table(
        ("id", "store", "epoch", "made"),
        [[f.flow, f.store, _pinned(f), text.age(f.created_us, now)] for f in found],
    )


def _pinned(fork: ForkRecord) -> str:
    each = (f"{region} {epoch}" for region, epoch in fork.regions.items())
    return ", ".join(each) or str(fork.epoch)
