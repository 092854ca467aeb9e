"""``riverlock set``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Change, Manifest
    from riverlock.snapshot.format.stored_parameters import Parameters

__all__ = ["parameter_rows", "print_parameters", "set_parameters"]

_POLL_SECONDS = 0.2


@command("set")
@store_argument
@click.argument("changes", metavar="[OPERATOR.NAME[=VALUE]]...", nargs=-1)
@click.option(
    "--default", "to_default", is_flag=True, help="Go back to the default in the code."
)
@click.option(
    "--wait",
    "seconds",
    type=click.FloatRange(min=0),
    default=30.0,
    help="How long to wait for that epoch; default 30 seconds.",
)
def set_parameters(
    *,
    store: str,
    changes: tuple[str, ...],
    to_default: bool,
    seconds: float,
    as_json: bool,
) -> int:
    r"""Change parameters (rl.Param) of a flow; without any, show them.

    In a running flow, all tasks have the new values from the same epoch on, which is
    printed. If the flow does not run, the first epoch of its next run has them. They
    belong to the store and override the default in the code, until you remove them with
    --default. Write lists and dictionaries as JSON.

    \b
    Examples:
      riverlock set store velocity.limit=200 velocity.hosts='["a", "b"]'
      riverlock set store velocity.limit --default
    """
    from riverlock.snapshot.format.requests import add_request
    from riverlock.snapshot.format.stored_parameters import check_change, parameters_of

    catalog = open_catalog(store)
    newest = catalog.resolve(None)
    known = parameters_of(newest.operators)
    if not changes:
        _show(catalog, newest, as_json=as_json)
        return 0
    wanted = check_change(known, _parsed(known, changes, to_default=to_default))
    run = _living_run(catalog)
    request = add_request(catalog, wanted, now_us=text.now_us())
    taken = None
    if run is not None:
        taken = _wait(catalog, request.number, newest.epoch, seconds)
    return _tell(wanted, run, taken, as_json=as_json)


def _parsed(known: Parameters, changes: tuple[str, ...], *, to_default: bool) -> Change:
    from riverlock.snapshot.format.records import Change
    from riverlock.snapshot.format.stored_parameters import parsed_value

    values: dict[str, dict[str, Any]] = {}
    defaults: dict[str, tuple[str, ...]] = {}
    for change in changes:
        name, has_value, value = change.partition("=")
        uid, _, name = name.rpartition(".")
        if not uid or not name or to_default == bool(has_value):
            wanted = "OPERATOR.NAME" if to_default else "OPERATOR.NAME=VALUE"
            hint = "" if has_value or to_default else ", or --default"
            raise click.UsageError(f"expected {wanted}{hint}, found {change!r}")
        if to_default:
            defaults[uid] = (*defaults.get(uid, ()), name)
        else:
            value = parsed_value(known, uid, name, value)
            values.setdefault(uid, {})[name] = value
    return Change(values=values, defaults=defaults)


def _living_run(catalog: Catalog) -> int | None:
    from riverlock.snapshot.owner import life_of

    run = catalog.newest_run()
    return run.run if run is not None and life_of(catalog, run).is_alive else None


def _wait(
    catalog: Catalog, number: int, before: int, seconds: float
) -> Manifest | None:
    """Return the first epoch that has taken up a request."""
    from riverlock.snapshot.format.requests import taken_at

    deadline = time.monotonic() + seconds
    while True:
        found = taken_at(catalog, number, after=before)
        if found is not None or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_SECONDS)


def _tell(
    wanted: Change, run: int | None, taken: Manifest | None, *, as_json: bool
) -> int:
    from riverlock.snapshot.format.stored_parameters import misfits, parameters_of

    known = {} if taken is None else parameters_of(taken.operators)
    passed_over = [] if taken is None else misfits(known, wanted)
    if as_json:
        text.print_json(
            {
                "run": run,
                "epoch": None if taken is None else taken.epoch,
                "values": wanted.values,
                "defaults": wanted.defaults,
                "passed_over": passed_over,
            }
        )
        return 1 if passed_over else 0
    for line in _lines(wanted, known):
        if taken is not None:
            click.echo(f"{line} since epoch {taken.epoch}")
        elif run is None:
            click.echo(f"{line} from the first epoch of the next run on")
        else:
            click.echo(f"{line}: run {run} was asked; its next epoch has it")
    for what in passed_over:
        click.echo(f"the code that runs by now has no parameter for {what}")
    return 1 if passed_over else 0


def _lines(wanted: Change, known: Parameters) -> list[str]:
    values = [
        f"{uid}.{name} is {_json(value)}"
        for uid, mine in wanted.values.items()
        for name, value in mine.items()
        if not known or name in known.get(uid, {})
    ]
    defaults = []
    for uid, names in wanted.defaults.items():
        for name in names:
            found = known.get(uid, {}).get(name)
            value = "" if found is None else f", {_json(found.default)},"
            defaults.append(f"{uid}.{name} is as the code says{value}")
    return values + defaults


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def parameter_rows(parameters: Parameters) -> list[dict[str, Any]]:
    """Return what to show about parameters, one by one."""
    return [
        {
            "operator": uid,
            "parameter": name,
            "kind": found.type,
            "value": found.in_force,
            "since": found.since,
            "default": found.default,
            "doc": found.doc,
        }
        for uid, mine in parameters.items()
        for name, found in mine.items()
    ]


def print_parameters(rows: list[dict[str, Any]]) -> None:
    """Print them as a table."""
    text.table(
        ("parameter", "kind", "value", "set in epoch", "in the code", "what it does"),
        [
            (
                f"{r['operator']}.{r['parameter']}",
                r["kind"],
                _json(r["value"]),
                "" if r["since"] is None else str(r["since"]),
                _json(r["default"]),
                r["doc"],
            )
            for r in rows
        ],
    )


def _show(catalog: Catalog, newest: Manifest, *, as_json: bool) -> None:
    from riverlock.snapshot.format.requests import pending_changes
    from riverlock.snapshot.format.stored_parameters import parameters_of

    rows = parameter_rows(parameters_of(newest.operators))
    pending = pending_changes(catalog, newest)
    if as_json:
        text.print_json(
            {
                "epoch": newest.epoch,
                "parameters": rows,
                "pending": [
                    {"values": c.values, "defaults": c.defaults} for c in pending
                ],
            }
        )
        return
    if not rows:
        click.echo(f"no operator of epoch {newest.epoch} declares an rl.Param")
        return
    print_parameters(rows)
    for change in pending:
        for line in _lines(change, {}):
            click.echo(f"asked for: {line}, from the next epoch on")
