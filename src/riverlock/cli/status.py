"""``riverlock status``: one screen from the store alone, also of a dead flow."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.channels import channels_between, print_channels
from riverlock.cli.command import command, open_starting, store_argument
from riverlock.cli.ranges import position
from riverlock.cli.set import parameter_rows, print_parameters
from riverlock.core.errors import StorageNotFoundError
from riverlock.core.guarantees import EXACTLY_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, Run, Start
    from riverlock.snapshot.format.run_status import Status
    from riverlock.snapshot.owner import Life

__all__ = ["status"]

_PERIOD_SECONDS = 1.0
# A run that has nothing left to read and decides nothing for so long is waiting.
_QUIET_US = 3_000_000
_STALLED_SECONDS = 10.0
_COLOURS = {
    "running": "green",
    "waiting": "green",
    "starting": "cyan",
    "stalled": "yellow",
    "failed": "red",
    "crashed": "red",
}


@command("status")
@store_argument
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@click.option("--full", is_flag=True, help="Show source positions in full.")
def status(*, store: str, watch: bool, full: bool, as_json: bool) -> None:
    r"""Show how a flow is doing: its state in one word, epoch, lag, rates, sizes.

    Reads the store only, so it works for a flow on another machine and for one that
    is dead. The words: starting, running, waiting (for input, or for a sink that does
    not answer), stalled (no heartbeat for a while), stopped, failed
    (with an error), crashed (without a word), new (no run yet).

    \b
    Examples:
      riverlock status store --watch
      riverlock status store --json | jq -r .state
    """
    catalog, _ = open_starting(store)
    if not watch:
        _show(catalog, full=full, as_json=as_json)
        return
    try:
        while True:
            if not as_json and sys.stdout.isatty():
                click.clear()
            _show(catalog, full=full, as_json=as_json)
            time.sleep(_PERIOD_SECONDS)
    except KeyboardInterrupt:
        return


def _show(catalog: Catalog, *, full: bool, as_json: bool) -> None:
    regions = catalog.living_regions()
    if len(regions) < 2:
        found = collect(catalog)
        if as_json:
            text.print_json(text.with_instants(found))
        else:
            _print(found, full=full)
        return
    by_name = {region: collect(catalog.of(region)) for region in regions}
    for region, way in _ways(catalog, regions).items():
        by_name[region]["along"] = way
    channels = channels_between(catalog, regions)
    if as_json:
        told = {region: text.with_instants(f) for region, f in by_name.items()}
        flow = next((f["flow"] for f in by_name.values() if f["flow"]), None)
        text.print_json({"flow": flow, "regions": told, "channels": channels})
        return
    for region, found in by_name.items():
        click.secho(f"region {region}", bold=True)
        _print(found, full=full)
        click.echo()
    print_channels(channels)


def _ways(catalog: Catalog, regions: Iterable[str]) -> dict[str, str]:
    """Return what sinks of each region are promised along the whole path, in words."""
    from riverlock.program.guarantees import way_to_region
    from riverlock.snapshot.format.channels import channels_of

    found = {region: catalog.of(region).newest() for region in regions}
    known = {region: newest for region, newest in found.items() if newest is not None}
    guarantees = {region: newest.guarantee for region, newest in known.items()}
    channels = [
        (region, reader)
        for region, newest in known.items()
        for _, reader, _ in channels_of(newest)
    ]
    return {r: str(way_to_region(r, guarantees, channels)) for r in known}


def collect(catalog: Catalog) -> dict[str, Any]:
    """Return all that the store tells of a flow now."""
    from riverlock.snapshot.format.input_times import input_times
    from riverlock.snapshot.format.run_status import status_of
    from riverlock.snapshot.format.store_layout import FLOW
    from riverlock.snapshot.format.stored_parameters import parameters_of
    from riverlock.snapshot.owner import Life, life_of
    from riverlock.snapshot.starts import starts

    now = text.now_us()
    newest, run, live = catalog.newest(), catalog.newest_run(), _live(catalog)
    life, coming = None if run is None else life_of(catalog, run), None
    if life is None or not life.is_alive:
        # A start comes after whatever ran before it.
        for start in starts(catalog, now_us=now)[-1:]:
            run, live, coming = _coming(start), None, start
            life = Life(is_alive=True, is_starting=True)
    is_new = not catalog.storage.exists(FLOW) and life is not None
    # The live status is a hint: one of an earlier run says nothing of this one.
    mine = (
        live if live is not None and run is not None and live.run == run.run else None
    )
    facts: dict[str, Any] = {
        # A first start has not made the store yet.
        "flow": None if is_new else catalog.flow().name,
        "store": catalog.storage.uri,
        "state": _word(life, mine, newest, now),
        "run": None if run is None else run.run or None,
        "host": None if run is None else run.host,
        "pid": None if run is None else run.pid,
        "started_us": None if run is None else run.started_us,
        "epoch": None,
        "error": None if mine is None else mine.error,
        "waiting": None if coming is None else coming.waiting,
        "waiting_since_us": None if coming is None else coming.waiting_since_us,
        "silent_seconds": None if life is None else life.silent_seconds,
    }
    if newest is not None:
        known = status_of(newest, updated_us=newest.decided_us, state="")
        facts |= _figures(newest, known, live)
        # Inputs of a flow that does not run are not idle: nobody reads them.
        is_read = life is not None and life.is_alive and not life.has_ended
        at = now if is_read else newest.decided_us
        since = newest.decided_us if run is None else run.started_us
        facts["inputs"] = [
            {name: getattr(each, name) for name in each.__struct_fields__}
            | {"policy": text.policy(each), "standing": text.standing(each, now)}
            for each in input_times(newest, now_us=at, since_us=since)
        ]
        facts["snapshot_age_seconds"] = max(0, now - newest.decided_us) / 1e6
        facts["operators"] = _operators(newest)
        facts["parameters"] = parameter_rows(parameters_of(newest.operators))
        facts["sinks"] = _sinks(newest)
        facts["sources"] = _sources(newest, facts["lag_rows"])
    return facts


def _coming(start: Start) -> Run:
    """Return a start as the run that it will be, whose number is not known yet."""
    from riverlock.snapshot.format.records import Run

    return Run(
        run=0,
        host=start.host,
        pid=start.pid,
        token=start.id,
        started_us=start.started_us,
        process=start.process,
    )


def _live(catalog: Catalog) -> Status | None:
    from riverlock.snapshot.format.run_status import Status
    from riverlock.snapshot.format.sealed import read_hint

    try:
        return read_hint(catalog.storage.get(catalog.paths.status), Status)
    except StorageNotFoundError:
        return None


def _word(
    life: Life | None, live: Status | None, newest: Manifest | None, now: int
) -> str:
    if life is None:
        return "new"
    if life.has_ended:
        return "stopped" if live is None else live.state.replace("running", "stopped")
    if not life.is_alive:
        return "crashed"
    if life.is_starting:
        return "starting"
    if life.silent_seconds is not None and life.silent_seconds > _STALLED_SECONDS:
        return "stalled"
    if live is not None and live.state == "waiting":
        return "waiting"
    is_quiet = newest is None or now - newest.decided_us > _QUIET_US
    is_level = live is not None and not any(live.lag_rows.values())
    return "waiting" if is_quiet and is_level else "running"


def _figures(newest: Manifest, known: Status, live: Status | None) -> dict[str, Any]:
    is_current = live is not None and live.epoch == newest.epoch
    return {
        "epoch": newest.epoch,
        "decided_us": newest.decided_us,
        "rows": known.rows,
        "rows_per_second": known.rows_per_second,
        "epoch_seconds": known.epoch_seconds,
        "lag_rows": dict(live.lag_rows) if live is not None and is_current else {},
        "loops": dict(live.loops) if live is not None and is_current else {},
        "watermark_us": known.watermark_us,
        "state_entries": known.state_entries,
        "state_bytes": known.state_bytes,
        "state_files": known.state_files,
        "parallelism": known.parallelism,
        "bad_rows": live.bad_rows if live is not None and is_current else 0,
        "files_set_aside": live.files_set_aside
        if live is not None and is_current
        else 0,
        "late_rows": live.late_rows if live is not None and is_current else 0,
        "skipped_rows": live.skipped_rows if live is not None and is_current else 0,
        "undelivered_rows": live.undelivered_rows
        if live is not None and is_current
        else 0,
        "dead_letters": known.dead_letters,
        "guarantee": newest.guarantee,
        "code": newest.code,
    }


def _operators(newest: Manifest) -> list[dict[str, Any]]:
    stages = newest.metrics.get("stages", {})
    return [
        {
            "uid": uid,
            "keys": s.keys,
            "entries": s.entries,
            "bytes": sum(f.bytes for f in s.files),
            "files": len(s.files),
            "rows": stages.get(uid, {}).get("rows"),
            "next_timer_us": _least(s.timers.event_us, s.timers.processing_us),
        }
        for uid, s in newest.operators.items()
    ]


def _least(*instants: int | None) -> int | None:
    return min((i for i in instants if i is not None), default=None)


def _sinks(newest: Manifest) -> list[dict[str, Any]]:
    return [
        {"uid": uid, "kind": output.kind, "rows": output.rows}
        for uid, output in newest.outputs.items()
    ]


def _sources(newest: Manifest, lag: dict[str, int | None]) -> list[dict[str, Any]]:
    from riverlock.snapshot.format.run_status import rows_by_source

    rows = rows_by_source(newest)
    return [
        {"uid": uid, "rows": rows[uid], "lag_rows": lag.get(uid), "position": read.end}
        for uid, read in newest.inputs.items()
    ]


def _print(found: dict[str, Any], *, full: bool) -> None:
    now = text.now_us()
    word = click.style(found["state"], fg=_COLOURS.get(found["state"]), bold=True)
    name = found["flow"] or found["store"]
    click.echo(f"{name}: {word}{_since(found, now)}")
    if found["waiting"]:
        since = text.instant(found["waiting_since_us"])
        click.echo(f"waiting for a source since {since}: {found['waiting']}")
    if found["epoch"] is None:
        click.echo("no epoch yet")
    else:
        text.facts(_screen(found, now))
        _print_tables(found, now, full=full)
    if found["error"]:
        is_waiting = found["state"] in ("waiting", "running")
        label = "" if is_waiting else click.style("last error: ", fg="red")
        click.echo("\n" + label + found["error"])
    if found["state"] == "crashed":
        click.echo("\nstart it again: it continues where it was, nothing is lost")


def _since(found: dict[str, Any], now: int) -> str:
    if found["pid"] is None:
        return ""
    began = text.age(found["started_us"], now)
    place = f"process {found['pid']} on {found['host']}"
    run = "" if found["run"] is None else f"run {found['run']}, "
    return f" ({run}{place}, started {began})"


def _screen(found: dict[str, Any], now: int) -> dict[str, str]:
    mark = found["watermark_us"]
    shown = {
        "epoch": f"{found['epoch']}, decided {text.age(found['decided_us'], now)}",
        "rate": f"{text.count(found['rows_per_second'])} records/s"
        f" ({text.counted(found['rows'], 'record')} in {found['epoch_seconds']:.2f} s)",
        "lag": lag(found["lag_rows"]),
        "watermark": text.watermark(mark, now),
        "state": f"{text.counted(found['state_entries'], 'entry')},"
        f" {text.size(found['state_bytes'])}"
        f" in {text.counted(found['state_files'], 'file')}",
        "parallelism": str(found["parallelism"]),
        "store": found["store"],
    }
    if "along" in found:
        shown["guarantee"] = found["along"]
    elif found["guarantee"] != EXACTLY_ONCE:
        shown["guarantee"] = found["guarantee"]
    if found["skipped_rows"]:
        shown["skipped rows"] = text.count(found["skipped_rows"])
    if found["undelivered_rows"]:
        shown["rows not delivered"] = text.count(found["undelivered_rows"])
    if found["bad_rows"]:
        shown["bad rows"] = text.count(found["bad_rows"])
    if found["files_set_aside"]:
        shown["files set aside"] = text.count(found["files_set_aside"])
    for loop, rows in found["loops"].items():
        shown[f"in loop {loop}"] = text.counted(rows, "row")
    if found["late_rows"]:
        shown["late rows"] = text.count(found["late_rows"])
    if found["dead_letters"]:
        shown["dead letters"] = text.count(found["dead_letters"])
    return shown


def lag(rows: dict[str, int | None]) -> str:
    """Return how many records wait to be read."""
    if not rows or None in rows.values():
        return "unknown"
    total = sum(n for n in rows.values() if n is not None)
    return "none" if total == 0 else text.counted(total, "record")


def _print_tables(found: dict[str, Any], now: int, *, full: bool) -> None:
    click.echo()
    text.table(
        ("source", "records", "lag", "position"),
        [
            (
                s["uid"],
                text.count(s["rows"]),
                text.count(s["lag_rows"]),
                position(s["position"], full=full),
            )
            for s in found["sources"]
        ],
    )
    if found["inputs"]:
        click.echo()
        text.table(
            ("event time", "watermark", "last record", "watermark policy", ""),
            [
                (
                    i["uid"],
                    text.watermark(i["watermark_us"]),
                    text.age(i["active_us"], now),
                    i["policy"],
                    i["standing"],
                )
                for i in found["inputs"]
            ],
        )
    if found["operators"]:
        click.echo()
        text.table(
            ("operator", "keys", "records", "entries", "size", "next timer"),
            [
                (
                    o["uid"],
                    o["keys"],
                    text.count(o["rows"]),
                    text.count(o["entries"]),
                    text.size(o["bytes"]),
                    text.instant(o["next_timer_us"]),
                )
                for o in found["operators"]
            ],
        )
    if found["parameters"]:
        click.echo()
        print_parameters(found["parameters"])
    if found["sinks"]:
        click.echo()
        text.table(
            ("sink", "kind", "records"),
            [(s["uid"], s["kind"], text.count(s["rows"])) for s in found["sinks"]],
        )
