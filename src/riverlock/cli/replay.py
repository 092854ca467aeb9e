"""``riverlock replay``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import msgspec

from riverlock.cli import text
from riverlock.cli.app import parse
from riverlock.cli.command import command, open_catalog
from riverlock.cli.run import open_app, session_options
from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from riverlock.replay.report import EpochReplay, Replay
    from riverlock.snapshot.catalog import Catalog

__all__ = ["replay"]

_SHOWN = 10


@command("replay")
@click.argument("epochs", metavar="STORE@EPOCH[..LAST]")
@click.argument("app", metavar="APP.py[:FLOW]", type=click.Path())
@click.option("--region", help="Of several regions, the one whose epochs these are.")
@click.option("--operator", metavar="UID", help="Which operator --key and --pdb mean.")
@click.option(
    "--key",
    metavar="KEY",
    help="Handle only this key: text, or a JSON array for several columns.",
)
@click.option("--pdb", "debug_here", is_flag=True, help="Stop in your own code.")
@click.option(
    "--diff", is_flag=True, help="Show what differs; default if the code has changed."
)
@click.option("--full", is_flag=True, help="Show all differences, not the first ten.")
@session_options
def replay(  # noqa: PLR0913 - the options of the command
    *,
    epochs: str,
    app: str,
    region: str | None,
    operator: str | None,
    key: str | None,
    debug_here: bool,
    diff: bool,
    full: bool,
    master: str | None,
    conf: dict[str, str],
    as_json: bool,
) -> int:
    r"""Run epochs again in this process, and compare the results.

    They begin from the snapshot before them and see the input, time and randomness
    that they saw. The store is only read, a running flow is not disturbed, and sinks
    get nothing. Exit with 0 if state and outputs are as they were, else with 1, also
    if the key was not seen at all. With --key only state is compared; the events of
    the key are shown, with the state before and after each and the rows it emitted.

    If the code has changed since the epochs ran, this is a shadow run: it shows which
    rows and which state would have been different.

    --pdb stops in on_event or on_timer at the first event, and where your code raises;
    give --key to stop at the events of one key only. LAST may be left out: the newest
    epoch. A single epoch may be given by its name.

    \b
    Examples:
      riverlock replay store@120..130 app.py --diff --full
      riverlock replay store@127 app.py --operator velocity --key ann --pdb
    """
    store, first, last = _epochs(epochs, region)
    flow = open_app(parse(app), master=master, conf=conf)
    found = flow.replay(
        store,
        first,
        last,
        region=region,
        operator=operator,
        key=None if key is None else _key(key),
        stepper=_stepper() if debug_here else None,
        on_epoch=_silent if as_json else _print_epoch,
    )
    if as_json:
        text.print_json(_facts(found))
    elif found.saw_nothing:
        click.echo(
            f"no record of key {key} was seen, and no timer: nothing was compared"
        )
        click.echo("  next  see which epochs changed it: riverlock explain STORE --key")
    else:
        _print_steps(found, limit=None if full else _SHOWN)
        _print(found, key, diff=diff or full, full=full)
    return 0 if found.matches and not found.saw_nothing else 1


def _epochs(given: str, region: str | None) -> tuple[str, int, int]:
    """Take ``STORE@120..130`` apart."""
    store, at, span = given.rpartition("@")
    if not at or not store or not span:
        raise InvalidConfigError(
            f"epochs {given!r}",
            expected="STORE@EPOCH or STORE@FIRST..LAST",
            found="no epoch",
            hint="see what exists: riverlock snapshots STORE",
        )
    catalog = open_catalog(store)
    if region is not None:
        catalog = catalog.of(region)
    begin, dots, end = span.partition("..")
    first = _number(catalog, begin)
    last = _number(catalog, end or None) if dots else first
    return store, first, last


def _number(catalog: Catalog, at: str | None) -> int:
    # A number is taken as it is: the replay says best what is missing.
    if at is not None and at.isdecimal():
        return int(at)
    return catalog.resolve(at).epoch


def _key(typed: str) -> Any:
    """Return what was typed as one value or, from a JSON array, several."""
    try:
        parsed = msgspec.json.decode(typed)
    except msgspec.MsgspecError:
        return typed
    return parsed if isinstance(parsed, list) else typed


def _stepper() -> Any:
    from riverlock.replay.stepping import Stepper

    return Stepper()


def _silent(_: EpochReplay) -> None:
    pass


def _print_epoch(epoch: EpochReplay) -> None:
    said = []
    for state in epoch.states:
        if not state.matches:
            groups = ["shared" if g is None else str(g) for g in state.groups]
            where = f"key groups {', '.join(groups[:_SHOWN])}"
            if len(groups) > _SHOWN:
                where += f" and {len(groups) - _SHOWN} more"
            said.append(f"state of {state.operator} differs ({where})")
    for output in epoch.outputs:
        if output.matches is None:
            said.append(f"output {output.sink} {output.how}")
        elif not output.matches:
            rows = f"{text.counted(output.recorded_rows, 'row')} then"
            said.append(
                f"output {output.sink} differs ({rows}, {text.count(output.rows)} now)"
            )
    entries = sum(s.entries for s in epoch.states)
    outcome = "matches" if epoch.matches else click.style("differs", fg="red")
    click.echo(
        f"epoch {epoch.epoch}: {text.counted(epoch.rows, 'row')},"
        f" {text.counted(entries, 'entry')} changed: {outcome}"
    )
    for line in said:
        click.echo(f"  {line}")


def _print_steps(found: Replay, *, limit: int | None) -> None:
    """Show what user code did with the key: event by event."""
    for step in found.steps[:limit]:
        click.echo(f"\nepoch {step.epoch}, {step.what}: {step.given}")
        for name, after in step.after.items():
            before = step.before[name]
            change = f"{_cell(before)} -> {_cell(after)}"
            click.echo(f"  {name}: {_cell(after) if before == after else change}")
        for row in step.rows:
            click.echo(f"  emitted {row!r}")
    _print_more(len(found.steps), limit)
    if found.steps:
        click.echo()


def _print(found: Replay, key: str | None, *, diff: bool, full: bool) -> None:
    wrong = sum(not e.matches for e in found.epochs)
    if not found.is_same_code:
        codes = ", ".join(found.recorded_code)
        click.echo(f"shadow run: the epochs ran code {codes}, this is {found.code}")
    if found.matches:
        click.echo(f"{_number_of(found)}: {_as_it_was(found, key)}")
        return
    click.echo(f"{wrong} of {_number_of(found)} came out differently")
    if diff or not found.is_same_code:
        _print_diff(found, limit=None if full else _SHOWN)
    else:
        click.echo("  next  see what differs: --diff")


def _as_it_was(found: Replay, key: str | None) -> str:
    """Say what was compared, and nothing else."""
    if key is not None:
        return f"state of key {key} is as it was; outputs were not compared"
    outputs = [o for e in found.epochs for o in e.outputs]
    unknown = dict.fromkeys(o.sink for o in outputs if o.matches is None)
    if unknown:
        return f"state is as it was; outputs too, but for {', '.join(unknown)}"
    return "state and outputs are as they were"


def _number_of(found: Replay) -> str:
    return text.counted(len(found.epochs), "epoch")


def _print_diff(found: Replay, *, limit: int | None) -> None:
    if found.changes:
        click.echo(
            f"\nstate: {text.counted(len(found.changes), 'entry')} came out differently"
        )
        text.table(
            ("operator", "key", "entry", "before", "after"),
            [
                (c.operator, _cell(c.key), c.entry, _cell(c.before), _cell(c.after))
                for c in found.changes[:limit]
            ],
        )
        _print_more(len(found.changes), limit)
    for epoch in found.epochs:
        for output in epoch.outputs:
            before = list(output.only_before.elements())
            after = list(output.only_after.elements())
            if before or after:
                click.echo(
                    f"\noutput {output.sink}, epoch {epoch.epoch}:"
                    f" {text.counted(len(before), 'row')} only before,"
                    f" {text.count(len(after))} only after"
                )
                for sign, rows in (("-", sorted(before)), ("+", sorted(after))):
                    for row in rows[:limit]:
                        click.echo(f"{sign} {row}")
                _print_more(max(len(before), len(after)), limit)


def _print_more(number: int, limit: int | None) -> None:
    if limit is not None and number > limit:
        click.echo(f"... {text.count(number - limit)} more; --full shows all")


def _cell(found: Any) -> str:
    if found is msgspec.UNSET:
        return "(not touched)"
    if found is None:
        return "(none)"
    return msgspec.json.encode(found, enc_hook=str).decode()


def _facts(found: Replay) -> dict[str, Any]:
    return {
        "matches": found.matches,
        "key_rows": found.key_rows,
        "steps": [
            {**asdict(s), "rows": [repr(r) for r in s.rows]} for s in found.steps
        ],
        "shadow": not found.is_same_code,
        "code": found.code,
        "recorded_code": found.recorded_code,
        "epochs": [
            {
                "epoch": e.epoch,
                "matches": e.matches,
                "rows": e.rows,
                "states": [{**asdict(s), "matches": s.matches} for s in e.states],
                "outputs": [
                    {
                        **asdict(o),
                        "only_before": sorted(o.only_before.elements()),
                        "only_after": sorted(o.only_after.elements()),
                    }
                    for o in e.outputs
                ],
            }
            for e in found.epochs
        ],
        "changes": [
            {
                name: value
                for name, value in asdict(c).items()
                if value is not msgspec.UNSET
            }
            for c in found.changes
        ],
    }
