"""``riverlock set``."""

from __future__ import annotations

import time
from dataclasses import dataclass
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
    from riverlock.snapshot.format.stored_parameters import check_change, parameters_of

    catalog = open_catalog(store)
    parts = {newest.region: newest for newest in catalog.resolve_all(None)}
    operators = {u: s for each in parts.values() for u, s in each.operators.items()}
    known = parameters_of(operators)
    if not changes:
        _show(catalog, parts, as_json=as_json)
        return 0
    wanted = check_change(known, _parsed(known, changes, to_default=to_default))
    deadline = time.monotonic() + seconds
    asked = [
        _ask(catalog.of(region), newest, mine)
        for region, newest in parts.items()
        if (mine := _part_of(wanted, newest)) is not None
    ]
    taken = [_wait(each, deadline) for each in asked]
    if as_json:
        facts = [_facts(*each) for each in zip(asked, taken, strict=True)]
        by_region = {a.catalog.region: f for a, f in zip(asked, facts, strict=True)}
        text.print_json(facts[0] if len(facts) == 1 else {"regions": by_region})
    else:
        for each, manifest in zip(asked, taken, strict=True):
            _tell(each, manifest, is_one=len(parts) == 1)
    return 1 if any(map(_passed_over, asked, taken)) else 0


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A region that was asked for other values."""

    catalog: Catalog
    wanted: Change
    run: int | None
    request: int
    before: int


def _part_of(wanted: Change, newest: Manifest) -> Change | None:
    """Return what of a change is of operators of one region; None: nothing."""
    from riverlock.snapshot.format.records import Change

    mine = newest.operators
    values = {uid: v for uid, v in wanted.values.items() if uid in mine}
    defaults = {uid: v for uid, v in wanted.defaults.items() if uid in mine}
    return Change(values=values, defaults=defaults) if values or defaults else None


def _ask(catalog: Catalog, newest: Manifest, wanted: Change) -> _Asked:
    from riverlock.snapshot.format.requests import add_request

    run = _living_run(catalog)
    request = add_request(catalog, wanted, now_us=text.now_us())
    return _Asked(
        catalog=catalog,
        wanted=wanted,
        run=run,
        request=request.number,
        before=newest.epoch,
    )


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


def _wait(asked: _Asked, deadline: float) -> Manifest | None:
    """Return the first epoch that has taken up a request; None: nobody has so far."""
    from riverlock.snapshot.format.requests import taken_at

    while asked.run is not None:
        found = taken_at(asked.catalog, asked.request, after=asked.before)
        if found is not None or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_SECONDS)
    return None


def _passed_over(asked: _Asked, taken: Manifest | None) -> list[str]:
    from riverlock.snapshot.format.stored_parameters import misfits, parameters_of

    known = {} if taken is None else parameters_of(taken.operators)
    return [] if taken is None else misfits(known, asked.wanted)


def _facts(asked: _Asked, taken: Manifest | None) -> dict[str, Any]:
    return {
        "run": asked.run,
        "epoch": None if taken is None else taken.epoch,
        "values": asked.wanted.values,
        "defaults": asked.wanted.defaults,
        "passed_over": _passed_over(asked, taken),
    }


def _tell(asked: _Asked, taken: Manifest | None, *, is_one: bool) -> None:
    from riverlock.snapshot.format.stored_parameters import parameters_of

    known = {} if taken is None else parameters_of(taken.operators)
    of = "" if is_one else f" of region {asked.catalog.region}"
    for line in _lines(asked.wanted, known):
        if taken is not None:
            click.echo(f"{line} since epoch {taken.epoch}{of}")
        elif asked.run is None:
            click.echo(f"{line} from the first epoch of the next run{of} on")
        else:
            click.echo(f"{line}: run {asked.run}{of} was asked; its next epoch has it")
    for what in _passed_over(asked, taken):
        click.echo(f"the code that runs by now has no parameter for {what}")


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


def _show(catalog: Catalog, parts: dict[str, Manifest], *, as_json: bool) -> None:
    by_region = {r: _shown(catalog.of(r), newest) for r, newest in parts.items()}
    if as_json:
        (*_, only) = by_region.values()
        text.print_json(only if len(by_region) == 1 else {"regions": by_region})
        return
    for region, found in by_region.items():
        if len(by_region) > 1:
            click.secho(f"region {region}", bold=True)
        _print_shown(found)


def _shown(catalog: Catalog, newest: Manifest) -> dict[str, Any]:
    from riverlock.snapshot.format.requests import pending_changes
    from riverlock.snapshot.format.stored_parameters import parameters_of

    return {
        "epoch": newest.epoch,
        "parameters": parameter_rows(parameters_of(newest.operators)),
        "pending": [
            {"values": c.values, "defaults": c.defaults}
            for c in pending_changes(catalog, newest)
        ],
    }


def _print_shown(found: dict[str, Any]) -> None:
    from riverlock.snapshot.format.records import Change

    if not found["parameters"]:
        click.echo(f"no operator of epoch {found['epoch']} declares an rl.Param")
        return
    print_parameters(found["parameters"])
    for change in found["pending"]:
        for line in _lines(Change(**change), {}):
            click.echo(f"asked for: {line}, from the next epoch on")
