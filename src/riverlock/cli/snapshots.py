"""``riverlock snapshots`` and ``riverlock snapshot``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument
from riverlock.cli.places import open_place
from riverlock.cli.ranges import brief_range
from riverlock.core.errors import SnapshotError
from riverlock.snapshot.address import open_store, split_address
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.verbs.cut import DEFAULT_PROTOCOL, PROTOCOLS, take_cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Named

__all__ = ["snapshot", "snapshots"]


@command("snapshots")
@store_argument
@click.option("--cuts", is_flag=True, help="Only snapshots of all regions.")
def snapshots(*, store: str, cuts: bool, as_json: bool) -> None:
    r"""List the epochs that are kept, and their names.

    Look into one with `riverlock state STORE --at EPOCH`, or go back to it. ``read``
    says from where to where each source was read; with --json each epoch has the full
    offsets. Snapshots of all regions follow, with how long each region took from the
    first marker that it saw to its own, and those that were given up, with the reason;
    with --json --cuts these are printed alone.

    \b
    Examples:
      riverlock snapshots store
      riverlock snapshots store --json | jq '.[-1].epoch'
    """
    catalog = open_catalog(store)
    if cuts:
        _only_cuts(catalog, as_json=as_json)
        return
    regions = catalog.regions() or [catalog.region]
    rows = [row for region in regions for row in _rows(catalog.of(region))]
    if as_json:
        text.print_json(rows)
        return
    if not rows:
        click.echo("no epoch yet")
        return
    now, shown = text.now_us(), [_shown(row, now=text.now_us()) for row in rows]
    if len(regions) == 1:
        text.table(_COLUMNS, shown)
        return
    named = [[row["region"], *cells] for row, cells in zip(rows, shown, strict=True)]
    text.table(("region", *_COLUMNS), named)
    _print_cuts(catalog, now)


def _only_cuts(catalog: Catalog, *, as_json: bool) -> None:
    if not as_json:
        _print_cuts(catalog, text.now_us())
        return
    taken = [n for n in catalog.snapshots() if n.cut is not None]
    given_up = CutLog(catalog.storage).abandoned()
    text.print_json(
        {
            "snapshots": [msgspec.to_builtins(named) for named in taken],
            "abandoned": [
                {**msgspec.to_builtins(proposal), "why": found.why}
                for proposal, found in given_up
            ],
        }
    )


def _print_cuts(catalog: Catalog, now: int) -> None:
    """Show the snapshots of all regions, and those that were given up."""
    cuts = [n for n in catalog.snapshots() if n.cut is not None]
    if cuts:
        click.echo()
        text.table(_CUT_COLUMNS, [_shown_cut(cut, now) for cut in cuts])
    given_up = [
        [proposal.name, text.age(proposal.asked_us, now), proposal.protocol, found.why]
        for proposal, found in CutLog(catalog.storage).abandoned()
    ]
    if given_up:
        click.echo()
        text.table(("abandoned", "age", "protocol", "why"), given_up[-_MOST_GIVEN_UP:])


@command("snapshot")
@click.argument("places", metavar="STORE[@EPOCH|NAME]...", nargs=-1, required=True)
@click.argument("name")
@click.option("--at", metavar="EPOCH", help="The epoch; default: the newest.")
@click.option("--note", default="", help="A remark to store with it.")
@click.option("--drop", is_flag=True, help="Remove the savepoint of that name.")
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    help=f"How several regions agree on the cut; default: {DEFAULT_PROTOCOL}.",
)
def snapshot(  # noqa: PLR0913 - the options of the command
    *,
    places: tuple[str, ...],
    name: str,
    at: str | None,
    note: str,
    drop: bool,
    protocol: str | None,
    as_json: bool,
) -> None:
    r"""Make a savepoint: name a snapshot, so that it is kept until it is dropped.

    The flow may run meanwhile. With --drop the name is removed, and its epoch is kept
    no longer than others. A flow of several regions must run: they agree on one
    consistent cut, and this waits until all have taken part. With several stores it is
    one cut over the flows of all of them, which must be joined by channels.

    \b
    Examples:
      riverlock snapshot store@41 audit-2026 --note "end of year"
      riverlock snapshot store-a store-b audit-2026 --protocol unaligned
    """
    place, *others = places
    if others:
        if drop or at:
            raise click.UsageError("of several stores, name neither epoch nor --drop")
        _joint(places, name, protocol or DEFAULT_PROTOCOL, note, as_json=as_json)
        return
    if drop:
        _drop(place, name, at or note, as_json=as_json)
        return
    store, address = split_address(place)
    if len(open_store(store).regions()) > 1:
        if at or address:
            raise click.UsageError("of several regions, epochs have no common number")
        _cut(store, name, protocol or DEFAULT_PROTOCOL, note, as_json=as_json)
        return
    catalog, manifest = open_place(place, at)
    epoch = manifest.epoch
    named = catalog.pin(name, epoch=epoch, now_us=text.now_us(), note=note)
    if as_json:
        text.print_json({"name": named.name, "epoch": epoch, "note": named.note})
        return
    click.echo(f"epoch {epoch} is kept as {name!r}")


def _joint(
    stores: tuple[str, ...], name: str, protocol: str, note: str, *, as_json: bool
) -> None:
    from riverlock.stores import savepoint_all

    taken = savepoint_all(stores, name, protocol=protocol, note=note)
    rows = sum(span.rows for named in taken for span in named.in_flight)
    if as_json:
        parts = {s: n.regions for s, n in zip(stores, taken, strict=True)}
        facts = {"name": name, "stores": parts, "protocol": protocol}
        text.print_json({**facts, "rows_in_flight": rows, "note": note})
        return
    for store, named in zip(stores, taken, strict=True):
        epochs = ", ".join(f"{r} {epoch}" for r, epoch in named.regions.items())
        click.echo(f"{store}: epochs {epochs} are kept as {name!r}")
    click.echo(f"{rows} rows in flight")


def _cut(store: str, name: str, protocol: str, note: str, *, as_json: bool) -> None:
    named = take_cut(
        open_store(store), name, protocol=protocol, now_us=text.now_us(), note=note
    )
    rows = sum(span.rows for span in named.in_flight)
    if as_json:
        facts = {"name": name, "regions": named.regions, "protocol": protocol}
        size = sum(span.bytes for span in named.in_flight)
        flying = {"rows_in_flight": rows, "bytes_in_flight": size}
        text.print_json({**facts, **flying, "note": note})
        return
    epochs = ", ".join(f"{region} {epoch}" for region, epoch in named.regions.items())
    click.echo(f"epochs {epochs} are kept as {name!r}, {rows} rows in flight")


def _drop(place: str, name: str, more: str | None, *, as_json: bool) -> None:
    store, epoch = split_address(place)
    if more or epoch is not None:
        raise click.UsageError("--drop takes STORE and NAME alone")
    catalog = open_store(store)
    dropped = catalog.unpin(name).regions
    first = next(iter(dropped.values()))
    if as_json:
        here = dropped.get(catalog.region, first)
        text.print_json({"name": name, "epoch": here, "regions": dropped})
        return
    said = f"epoch {first} is"
    if len(dropped) > 1:
        each = ", ".join(f"{region} {epoch}" for region, epoch in dropped.items())
        said = f"epochs {each} are"
    click.echo(f"{said} no longer kept as {name!r}")


# Of those that were given up, the last ones; --json has all.
_MOST_GIVEN_UP = 20
_CUT_COLUMNS = (
    "snapshot",
    "age",
    "protocol",
    "took",
    "aligned in",
    "epochs",
    "rows in flight",
    "bytes",
)


def _shown_cut(named: Named, now: int) -> list[str]:
    asked = named.created_us if named.asked_us is None else named.asked_us
    flying = [f"{s.channel} {s.rows}" for s in named.in_flight if s.rows]
    aligned = named.alignment_us.items()
    return [
        named.name,
        text.age(named.created_us, now),
        named.protocol,
        text.duration((named.created_us - asked) / 1e6),
        ", ".join(f"{r} {text.duration(t / 1e6)}" for r, t in aligned) or "-",
        ", ".join(f"{region} {epoch}" for region, epoch in named.regions.items()),
        ", ".join(flying) or "0",
        text.size(sum(s.bytes for s in named.in_flight)),
    ]


_COLUMNS = (
    "epoch",
    "decided",
    "age",
    "records",
    "entries",
    "state",
    "added",
    "took",
    "tasks",
    "run",
    "code",
    "read",
    "names",
)


def _names(catalog: Catalog) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for named in catalog.snapshots():
        epoch = named.regions.get(catalog.region)
        if epoch is not None:
            names.setdefault(epoch, []).append(named.name)
    return names


def _rows(catalog: Catalog) -> list[dict[str, Any]]:
    names = _names(catalog)
    return [_row(catalog, epoch, names.get(epoch, [])) for epoch in catalog.epochs()]


def _row(catalog: Catalog, epoch: int, names: list[str]) -> dict[str, Any]:
    from riverlock.snapshot.format.run_status import input_rows

    try:
        manifest = catalog.manifest(epoch)
    except SnapshotError as error:
        return {
            "region": catalog.region,
            "epoch": epoch,
            "names": names,
            "problem": error.message,
        }
    files = [f for s in manifest.operators.values() for f in s.files]
    return {
        "region": catalog.region,
        "epoch": epoch,
        "decided_us": manifest.decided_us,
        "rows": input_rows(manifest),
        "state_entries": sum(s.entries for s in manifest.operators.values()),
        "state_bytes": sum(f.bytes for f in files),
        "state_files": len(files),
        "added_bytes": sum(f.bytes for f in files if f.first_epoch == epoch),
        "seconds": (manifest.decided_us - manifest.started_us) / 1e6,
        "parallelism": manifest.parallelism,
        "run": manifest.run,
        "code": manifest.code,
        "inputs": {
            uid: {"start": r.start, "end": r.end, "rows": r.rows}
            for uid, r in manifest.inputs.items()
        },
        "names": names,
        "problem": None,
    }


def _read(inputs: dict[str, Any]) -> Iterator[str]:
    for uid, span in inputs.items():
        moved = brief_range(span["start"], span["end"])
        if moved:
            yield f"{uid} {moved}"


def _shown(row: dict[str, Any], now: int) -> list[str]:
    names = ", ".join(row["names"])
    if row["problem"] is not None:
        blank = ["-"] * (len(_COLUMNS) - 2)
        return [str(row["epoch"]), *blank, f"{names} DAMAGED: riverlock verify".strip()]
    return [
        str(row["epoch"]),
        text.instant(row["decided_us"]),
        text.age(row["decided_us"], now),
        text.count(row["rows"]),
        text.count(row["state_entries"]),
        text.size(row["state_bytes"]),
        text.size(row["added_bytes"]),
        text.duration(row["seconds"]),
        str(row["parallelism"]),
        str(row["run"]),
        row["code"][:8],
        "; ".join(_read(row["inputs"])),
        names,
    ]
