"""``riverlock expire``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument
from riverlock.cli.confirmation import agreed, dry_run_option, yes_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.snapshot.verbs.expire import Expiry

__all__ = ["expire"]

_BYTES = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kKMGT]?)[bB]?")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def _bytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = _BYTES.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no size such as 500MB or 10GB")
    return int(float(match["number"]) * _UNITS[match["unit"].upper()])


@command("expire")
@store_argument
@click.option(
    "--keep-epochs",
    type=click.IntRange(min=1),
    help="Keep this many of the newest epochs.",
)
@click.option(
    "--older-than", metavar="AGE", help="Delete epochs older than this: 7d, 12h."
)
@click.option(
    "--max-bytes",
    metavar="SIZE",
    callback=_bytes,
    help="Delete the oldest until state files fit in this: 500MB, 10GB.",
)
@click.option(
    "--grace",
    metavar="AGE",
    default="10 minutes",
    help="Keep younger epochs, which may be in use; default 10 minutes.",
)
@dry_run_option
@yes_option
def expire(  # noqa: PLR0913 - the options of the command
    *,
    store: str,
    keep_epochs: int | None,
    older_than: str | None,
    max_bytes: int | None,
    grace: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    r"""Delete old epochs, and the files that only they refer to.

    The newest epoch, and those that have a name, a fork or a reader, always stay. The
    flow may run meanwhile.

    \b
    Examples:
      riverlock expire store --keep-epochs 5 --dry-run
      riverlock expire store --older-than 7d --max-bytes 10GB --yes
    """
    from riverlock.core.times import duration
    from riverlock.snapshot.verbs.expire import Limits, plan_expiry, readers_first
    from riverlock.snapshot.verbs.expire import expire as carry_out

    limits = Limits(
        epochs=keep_epochs,
        age=None if older_than is None else duration(older_than),
        bytes=max_bytes,
        grace=duration(grace),
    )
    parts = readers_first(open_catalog(store))
    plans = {p.region: plan_expiry(p, limits, now_us=text.now_us()) for p in parts}
    facts, lines = _all_facts(plans), _all_lines(plans)
    if not any(plan.epochs for plan in plans.values()):
        if as_json:
            text.print_json({"done": False, "plan": facts})
        else:
            text.facts(lines)
        return
    how = {"yes": yes, "dry_run": dry_run, "as_json": as_json}
    if not agreed(facts, lines, **how):
        return
    files = sum(carry_out(part, plans[part.region]) for part in parts)
    if as_json:
        text.print_json({"done": True, "deleted_files": files, "plan": facts})
        return
    click.echo(f"deleted {text.counted(files, 'file')}")


def _all_facts(plans: Mapping[str, Expiry]) -> dict[str, Any]:
    """Return the plan of the one region, or those of several by their names."""
    facts = {region: _facts(plan) for region, plan in plans.items()}
    return next(iter(facts.values())) if len(facts) == 1 else facts


def _all_lines(plans: Mapping[str, Expiry]) -> dict[str, str]:
    return {
        what if len(plans) == 1 else f"{region}: {what}": said
        for region, plan in plans.items()
        for what, said in _lines(plan).items()
    }


def _facts(plan: Expiry) -> dict[str, Any]:
    return {
        "epochs": plan.epochs,
        "files": plan.files,
        "bytes": plan.bytes,
        "bytes_left": plan.bytes_left,
        "spared": {str(e): why for e, why in plan.spared.items()},
    }


def _lines(plan: Expiry) -> dict[str, str]:
    epochs = ", ".join(map(str, plan.epochs)) or "none"
    lines = {
        "epochs that go": epochs,
        "files that go": f"{len(plan.files)}, {text.size(plan.bytes)}",
        "state that stays": text.size(plan.bytes_left),
    }
    if plan.spared:
        lines["kept though over a limit"] = "\n".join(
            f"{epoch}: {', '.join(why)}" for epoch, why in plan.spared.items()
        )
    return lines
