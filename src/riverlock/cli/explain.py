"""``riverlock explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from riverlock.cli import text
from riverlock.cli.command import command
from riverlock.cli.ranges import span
from riverlock.cli.set import parameter_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.snapshot.format.records import InputRange, Parameter
    from riverlock.snapshot.lineage import Leg, Lineage
    from riverlock.snapshot.provenance import Touch

__all__ = ["explain"]


@command("explain")
@click.argument("address", metavar="STORE[@EPOCH|NAME]")
@click.option("--operator", metavar="UID", help="The operator that has the key.")
@click.option(
    "--key",
    metavar="KEY",
    help="Which epochs changed this key: text, or a JSON array for several columns.",
)
@click.option("--region", help="Of several regions only this one.")
@click.option("--full", is_flag=True, help="Show source positions in full.")
def explain(  # noqa: PLR0913 - the options of the command
    *,
    address: str,
    operator: str | None,
    key: str | None,
    region: str | None,
    full: bool,
    as_json: bool,
) -> None:
    r"""Show what led to an epoch: runs, code, restores, and what was read.

    With --key: the epochs that changed the key, and what they had read. For epochs
    whose changes have been merged, only their span is known. --operator may be left
    out if only one operator has state. Of a flow with several regions, all are shown.

    \b
    Examples:
      riverlock explain store@41
      riverlock explain store --operator velocity --key ann --json
    """
    from riverlock import stores

    if key is None:
        if operator is not None:
            raise click.UsageError("--operator needs a --key")
        found = [
            stores.explain(address, region=each) for each in _regions(address, region)
        ]
        _show_all(found, full=full, as_json=as_json)
        return
    touched = stores.touches(address, operator or _only_operator(address), key)
    _show_touches(touched, full=full, as_json=as_json)


def _regions(address: str, region: str | None) -> list[str | None]:
    """Return the regions to show; None: the flow has one only."""
    from riverlock.snapshot.address import open_store, split_address

    known = open_store(split_address(address)[0]).regions()
    return [*known] if region is None and len(known) > 1 else [region]


def _only_operator(address: str) -> str:
    from riverlock.snapshot.address import open_store, split_address

    store, at = split_address(address)
    manifests = open_store(store).resolve_all(at)
    operators = [uid for manifest in manifests for uid in manifest.operators]
    if len(operators) != 1:
        names = ", ".join(operators) or "none"
        raise click.UsageError(f"--key needs an --operator; with state: {names}")
    return operators[0]


def _show_all(found: list[Lineage], *, full: bool, as_json: bool) -> None:
    if as_json:
        facts = [_facts(each) for each in found]
        text.print_json(facts[0] if len(facts) == 1 else {"regions": facts})
        return
    for place, each in enumerate(found):
        if len(found) > 1:
            click.echo(("" if place == 0 else "\n") + f"region {each.manifest.region}")
        _show(each, full=full)


def _facts(found: Lineage) -> dict[str, Any]:
    from riverlock.snapshot.format.stored_parameters import parameters_of

    manifest, flow, run = found.manifest, found.flow, found.run
    return {
        "region": manifest.region,
        "epoch": manifest.epoch,
        "parent": manifest.parent,
        "flow": flow.name,
        "id": flow.id,
        "origin": None if flow.origin is None else msgspec.to_builtins(flow.origin),
        "decided_us": manifest.decided_us,
        "now_us": manifest.now_us,
        "seed": manifest.seed,
        "code": manifest.code,
        "parallelism": manifest.parallelism,
        "run": None if run is None else msgspec.to_builtins(run),
        "inputs": _ranges(manifest.inputs),
        "read_so_far": _ranges(found.inputs),
        "parameters": parameter_rows(parameters_of(manifest.operators)),
        "legs": [_leg(leg) for leg in found.legs],
    }


def _show(found: Lineage, *, full: bool) -> None:
    from riverlock.snapshot.format.run_status import rows_by_source
    from riverlock.snapshot.format.stored_parameters import parameters_of

    manifest, flow, run = found.manifest, found.flow, found.run
    origin = flow.origin
    lines = {
        "epoch": f"{manifest.epoch} of {flow.name}",
        "decided": text.instant(manifest.decided_us),
        "run": "unknown"
        if run is None
        else f"{run.run}, process {run.pid} on {run.host}",
        "code": manifest.code,
        "tasks": str(manifest.parallelism),
    }
    if origin is not None:
        epoch = origin.epochs.get(manifest.region, origin.epoch)
        lines["forked from"] = f"epoch {epoch} of {origin.store}"
    rows = rows_by_source(manifest)
    for uid, read in manifest.inputs.items():
        lines[f"read {uid}"] = span(read.start, read.end, rows[uid], full=full)
    for uid, mine in parameters_of(manifest.operators).items():
        for name, parameter in mine.items():
            lines[f"{uid}.{name}"] = _parameter(parameter)
    lines["led by"] = "\n".join(_described(leg) for leg in found.legs)
    text.facts(lines)


def _parameter(found: Parameter) -> str:
    value, default = (
        msgspec.json.encode(v).decode() for v in (found.in_force, found.default)
    )
    if found.value is None:
        return f"{value}, as the code says"
    return f"{value}, set in epoch {found.since}; the code says {default}"


def _leg(leg: Leg) -> dict[str, Any]:
    return {
        "first": leg.first,
        "last": leg.last,
        "what": leg.what,
        "run": None if leg.run is None else leg.run.run,
        "code": leg.code,
        "parallelism": leg.parallelism,
        "from": leg.from_epoch,
    }


def _described(leg: Leg) -> str:
    epochs = _epochs(leg.first, leg.last)
    by = "a run that is forgotten" if leg.run is None else f"run {leg.run.run}"
    if leg.what == "undone":
        return f"{epochs}: undone, not part of it"
    if leg.what == "restore":
        return f"{epochs}: went back to epoch {leg.from_epoch} ({by})"
    code = "" if leg.code is None else f", code {leg.code[:8]}"
    tasks = (
        "" if leg.parallelism is None else f", {text.counted(leg.parallelism, 'task')}"
    )
    return f"{epochs}: {by}{code}{tasks}"


def _epochs(first: int, last: int) -> str:
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def _ranges(inputs: Mapping[str, InputRange]) -> dict[str, Any]:
    return {
        uid: {"start": r.start, "end": r.end, "rows": r.rows}
        for uid, r in inputs.items()
    }


def _show_touches(found: list[Touch], *, full: bool, as_json: bool) -> None:
    if as_json:
        text.print_json(
            [
                {
                    "first": t.first,
                    "last": t.last,
                    "entries": t.entries,
                    "deletes": t.deletes,
                    "inputs": None if t.inputs is None else _ranges(t.inputs),
                }
                for t in found
            ]
        )
        return
    if not found:
        click.echo("no epoch on record touched it")
        return
    rows = []
    for touch in found:
        inputs = touch.inputs or {}
        read = "; ".join(
            f"{uid} {span(r.start, r.end, r.rows, full=full)}"
            for uid, r in inputs.items()
        )
        epochs = _epochs(touch.first, touch.last)
        shown = epochs if touch.first == touch.last else f"some of {epochs}"
        rows.append([shown, touch.entries, touch.deletes, read])
    text.table(("touched in", "entries", "of them gone", "which had read"), rows)
