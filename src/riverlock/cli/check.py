"""``riverlock check``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from riverlock.change.unnamed import unnamed
from riverlock.cli import text
from riverlock.cli.app import parse
from riverlock.cli.command import command
from riverlock.cli.regions import print_regions, regions_in
from riverlock.cli.run import continuous_option, open_app, session_options
from riverlock.cli.set import parameter_rows
from riverlock.cli.state import kind
from riverlock.connectors.base.direct import promised
from riverlock.connectors.base.sink import Making, Probed
from riverlock.core.errors import DefinitionError, SinkError, SinkUnavailableError
from riverlock.flow.inside import program_of
from riverlock.operators.endless_state import endless_states
from riverlock.program.guarantees import ways_to_sinks

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Committer
    from riverlock.core.errors import RiverlockError
    from riverlock.core.types import Schema
    from riverlock.driver.engine import Engine
    from riverlock.program.program import Program
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest
    from riverlock.stages.compiled import CompiledFlow

__all__ = ["check"]

_ANSWERS = {True: "yes", False: "no", None: "not asked"}


@command("check")
@click.argument("app", metavar="APP.py[:FLOW]", type=click.Path())
@click.option("--store", help="Show what a start would do to the state of this store.")
@continuous_option
@session_options
def check(  # noqa: PLR0913 - the options of the command
    *,
    app: str,
    store: str | None,
    master: str | None,
    conf: dict[str, str],
    continuous: bool,
    as_json: bool,
) -> int | None:
    r"""Check a flow without running it. Read no input, change no store.

    Show the graph, the operators with their uid, keys and state, and the guarantee of
    each sink with its reason. Ask sinks that are servers whether they can be reached
    and fit; if one cannot, exit with 5. With --store, also show how the columns of
    sources differ from those of the newest epoch, and what would happen to the stored
    state: what is kept, added, dropped, widened, renamed, migrated or refused. Exit
    with 1 if a start would be refused. With --continuous, a step that tasks cannot run
    without Spark is refused by its name. List what a start would create (store, tables,
    directories), but create nothing.

    \b
    Examples:
      riverlock check app.py --store store
      riverlock check app.py:shop --json | jq '.sinks[].guarantee'
    """
    flow = open_app(parse(app), master=master, conf=conf)
    found = _facts(program_of(flow), store, continuous=continuous)
    if as_json:
        text.print_json(found)
    else:
        _print(found)
    if found.get("refused"):
        return 1
    has_trouble = any(sink["trouble"] for sink in found["sinks"])
    return SinkError.exit_code if has_trouble else None


def _going_on(
    flow: Program, parts: tuple[CompiledFlow, ...], engine: Engine, store: str
) -> dict[str, Any]:
    """Return why a start would be refused, and what it would do to the state."""
    from riverlock.driver.starting.continuing import obstacles
    from riverlock.driver.starting.left_regions import left_regions
    from riverlock.driver.starting.source_readers import readers_of
    from riverlock.program.regions import channel_columns

    refusals: list[RiverlockError] = [*left_regions(_catalog(store), flow)]
    found: dict[str, Any] = {}
    columns: dict[str, Schema] = {}
    for part in parts:
        catalog = _catalog(store).of(part.flow.region)
        newest = catalog.newest()
        with ExitStack() as stack:
            readers = readers_of(part.flow, engine, catalog.storage, stack, columns)
            refusals += obstacles(catalog, part, readers, newest)
        columns |= channel_columns(part.flow, part.uses)
        if newest is not None:
            for name, value in _upgrade(catalog, part, newest).items():
                known = found.setdefault(name, value)
                if known is not value and isinstance(value, list):
                    found[name] = known + value
    return {
        "refused": [error.message for error in refusals],
        "hints": list(dict.fromkeys(e.hint for e in refusals if e.hint)),
        **found,
    }


def _upgrade(
    catalog: Catalog, compiled: CompiledFlow, newest: Manifest
) -> dict[str, Any]:
    from riverlock.driver.starting.adoption import upgrade_of

    upgrade = upgrade_of(catalog, compiled, newest)
    inputs = compiled.inputs(newest)
    return {
        "epoch": newest.epoch,
        "columns": [
            {
                "source": step.operator,
                "column": step.variable,
                "action": step.action,
                "detail": step.detail,
            }
            for step in inputs.steps
        ],
        "upgrade": [asdict(step) for step in upgrade.steps],
    }


def _catalog(store: str) -> Catalog:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.open import open_storage

    return Catalog(open_storage(store))


def _store_to_make(store: str | None) -> list[dict[str, str]]:
    from riverlock.snapshot.format.store_layout import FLOW

    if store is None:
        return []
    storage = _catalog(store).storage
    return [] if storage.exists(FLOW) else [{"what": "store", "where": storage.uri}]


def _facts(flow: Program, store: str | None, *, continuous: bool) -> dict[str, Any]:
    from riverlock.driver.run_options import RunOptions
    from riverlock.engines.running import opened

    execution: Any = "continuous" if continuous else "jobs"
    with opened(RunOptions(execution=execution)) as engine:
        return _told(flow, engine, store)


def _told(flow: Program, engine: Engine, store: str | None) -> dict[str, Any]:
    from riverlock.driver.runner import check as compiled_of

    parts = compiled_of(flow, engine, store=store)
    sinks = _sinks(flow, parts, engine)
    return {
        "flow": flow.name,
        "key_groups": flow.key_groups,
        "code": "-".join(part.code for part in parts),
        "regions": [part.flow.region for part in parts],
        **regions_in(flow, tuple(part.flow.region for part in parts)),
        "graph": flow.describe(),
        "operators": [
            {
                "uid": stage.id,
                "keys": stage.plan.keys,
                "state": {n: kind(v) for n, v in stage.plan.variables.items()},
                "parameters": [
                    {k: v for k, v in row.items() if k not in ("operator", "since")}
                    for row in parameter_rows({stage.id: stage.plan.parameters})
                ],
                "outputs": {n: s.ddl for n, s in stage.program.outputs.items()},
            }
            for part in parts
            for stage in part.keyed
        ],
        "sinks": sinks,
        "generated": [asdict(each) for each in unnamed(flow)],
        "endless": [asdict(each) for each in endless_states(flow)],
        "creates": _store_to_make(store)
        + [
            {"what": f"sink {sink['uid']}", "where": made}
            for sink in sinks
            for made in sink["creates"]
        ],
        **({} if store is None else _going_on(flow, parts, engine, store)),
    }


def _sinks(
    flow: Program, parts: tuple[CompiledFlow, ...], engine: Engine
) -> list[dict[str, Any]]:
    """Return what each sink is promised, along its whole path, and what it says."""
    import tempfile

    from riverlock.storage.open import open_storage

    ways = {uid: str(way) for uid, way in ways_to_sinks(flow).items()}
    found = []
    with tempfile.TemporaryDirectory() as nowhere:
        storage = open_storage(nowhere)
        for part, write in ((p, w) for p in parts for w in p.flow.writes):
            use, sink = part.uses[write.uid], write.sink
            committer = engine.committer(write, use, storage)
            words = promised(sink, use, part.flow.guarantee, committer.guarantee)
            found.append(
                {
                    "uid": write.uid,
                    "kind": sink.kind,
                    "guarantee": words,
                    "along": ways.get(write.uid),
                    **_asked(committer),
                }
            )
    order = [write.uid for write in flow.writes]
    return sorted(found, key=lambda sink: order.index(sink["uid"]))


def _asked(committer: Committer) -> dict[str, Any]:
    """Return whether a sink answers, what is wrong with it, what it would create."""
    nothing: dict[str, Any] = {"reachable": None, "trouble": None, "creates": ()}
    try:
        if isinstance(committer, Probed):
            nothing["reachable"] = True
            committer.probe()
        made = committer.to_make() if isinstance(committer, Making) else ()
    except SinkUnavailableError as error:
        return {**nothing, "reachable": False, "trouble": str(error)}
    except (DefinitionError, SinkError) as error:
        return {**nothing, "trouble": str(error)}
    return {**nothing, "creates": made}


def _print(found: dict[str, Any]) -> None:
    troubles = [s for s in found["sinks"] if s["trouble"]]
    verdict = "cannot run yet" if troubles else "can run"
    if found.get("refused"):
        verdict = "cannot run on this store"
    click.echo(f"flow {found['flow']} {verdict} ({found['key_groups']} key groups)\n")
    text.table(
        ("node", "kind", "uid", "reads", "what"),
        [
            (
                str(node["number"]),
                node["kind"],
                node["uid"] or "",
                ", ".join(map(str, node["inputs"])),
                node["detail"],
            )
            for node in found["graph"]
        ],
    )
    if found["operators"]:
        click.echo()
        text.table(
            ("operator", "keys", "state", "parameters", "output"),
            [
                (
                    o["uid"],
                    o["keys"],
                    ", ".join(f"{n}: {k}" for n, k in o["state"].items()) or "none",
                    ", ".join(
                        f"{p['parameter']}={text.value(p['default'])}"
                        for p in o["parameters"]
                    )
                    or "none",
                    "; ".join(o["outputs"].values()) or "none",
                )
                for o in found["operators"]
            ],
        )
    print_regions(found)
    if found["sinks"]:
        click.echo()
        text.table(
            ("sink", "kind", "reachable", "guarantee"),
            [
                (s["uid"], s["kind"], _ANSWERS[s["reachable"]], s["guarantee"])
                for s in found["sinks"]
            ],
        )
        _print_ways(found)
    _print_notes(found)
    for sink in troubles:
        mark = click.style(f"sink {sink['uid']}: ", fg="red")
        click.echo(f"\n{mark}{sink['trouble']}")
    if "upgrade" in found:
        _print_upgrade(found)
    for said in found.get("refused", ()):
        click.echo(click.style("refused: ", fg="red", bold=True) + said)
    for hint in found.get("hints", ()):
        click.echo(f"  next  {hint}")


def _print_ways(found: dict[str, Any]) -> None:
    """Show what sinks are promised along their whole path, unless it is plain."""
    along = [(s["uid"], s["along"]) for s in found["sinks"] if s["along"]]
    if any(said != "exactly once (region main)" for _, said in along):
        click.echo("\nafter a failure, along the whole path")
        text.table(("sink", "rows are there"), along)


def _print_notes(found: dict[str, Any]) -> None:
    if found["generated"]:
        click.echo(
            "\nuids made from the order of the code: write them before you change it"
        )
        text.table(
            ("uid", "of", "write", "written in"),
            [(g["uid"], g["of"], g["write"], g["line"]) for g in found["generated"]],
        )
    if found["endless"]:
        click.echo("\nstate that is never forgotten: it grows with every new key")
        text.table(
            ("operator", "by", "if keys keep coming", "written in"),
            [
                (e["uid"], ", ".join(e["keys"]), e["write"], e["line"])
                for e in found["endless"]
            ],
        )
    if found["creates"]:
        click.echo("\na start would create")
        text.table(
            ("for", "creates"), [(c["what"], c["where"]) for c in found["creates"]]
        )


def _print_upgrade(found: dict[str, Any]) -> None:
    if found["columns"]:
        click.echo(f"\ncolumns of sources since epoch {found['epoch']}")
        text.table(
            ("source", "column", "becomes", "how"),
            [
                (c["source"], c["column"], str(c["action"]), c["detail"])
                for c in found["columns"]
            ],
        )
    click.echo(f"\nstate of epoch {found['epoch']}")
    text.table(
        ("operator", "state", "becomes", "how"),
        [
            (s["operator"], s["variable"] or "", str(s["action"]), s["detail"])
            for s in found["upgrade"]
        ],
    )
