"""``riverlock state``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.command import command
from riverlock.cli.places import open_place, place_argument
from riverlock.core.errors import RiverlockError
from riverlock.core.values.arrow_values import python_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, OperatorState, Variable

__all__ = ["state"]

_TIMERS = "timers"
_SAMPLE = 3


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of operators and state variables."""
    try:
        place, at = ctx.params["place"], ctx.params.get("at")
        manifest = open_place(place, at, operator=ctx.params.get("operator"))[1]
        if param.name == "operator":
            names = list(manifest.operators)
        else:
            operator = manifest.operators[ctx.params["operator"]]
            names = [*operator.variables, _TIMERS]
    except (RiverlockError, KeyError):
        return []
    return [n for n in names if n.startswith(incomplete)]


@command("state")
@place_argument
@click.argument("operator", required=False, shell_complete=_complete)
@click.argument("variable", metavar="[STATE]", required=False, shell_complete=_complete)
@click.option(
    "--key",
    metavar="KEY",
    help="Only this key: text, or a JSON array for several columns or null.",
)
@click.option("--at", metavar="EPOCH|NAME", help="Which epoch; default: the newest.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, help="Rows to show; default 20."
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write all rows to a Parquet file instead.",
)
def state(  # noqa: PLR0913 - the options of the command
    *,
    place: str,
    operator: str | None,
    variable: str | None,
    key: str | None,
    at: str | None,
    limit: int,
    out: Path | None,
    as_json: bool,
) -> None:
    r"""Show the state of operators at any kept epoch.

    Without OPERATOR, list all operators. With it, show its state variables, each with a
    sample. With STATE (a variable, or `timers`), show the rows, typed. The flow may run
    meanwhile.

    \b
    Examples:
      riverlock state store velocity spent --key ann
      riverlock state store velocity --key '["ann", 7]' --at before-upgrade --json
    """
    if operator is None and key is not None:
        raise click.UsageError("--key needs an OPERATOR")
    if variable is None and out is not None:
        raise click.UsageError("--out needs an OPERATOR and a STATE")
    catalog, manifest = open_place(place, at, operator=operator)
    if operator is None:
        _show_operators(manifest, as_json=as_json)
        return
    view = _View(catalog, manifest, operator, key)
    if variable is None:
        view.show_variables(limit=min(limit, _SAMPLE), as_json=as_json)
    elif out is not None:
        view.write(variable, out, as_json=as_json)
    else:
        view.show_rows(variable, limit=limit, as_json=as_json)


def _show_operators(manifest: Manifest, *, as_json: bool) -> None:
    if as_json:
        text.print_json(
            {
                "epoch": manifest.epoch,
                "operators": {u: _summary(s) for u, s in manifest.operators.items()},
            }
        )
        return
    click.echo(f"epoch {manifest.epoch}, decided {text.instant(manifest.decided_us)}")
    if not manifest.operators:
        click.echo("no operator has state")
        return
    text.table(
        ("operator", "keys", "entries", "size", "state"),
        [
            (
                uid,
                s.keys,
                text.count(s.entries),
                text.size(sum(f.bytes for f in s.files)),
                ", ".join(f"{n}: {kind(v)}" for n, v in s.variables.items()),
            )
            for uid, s in manifest.operators.items()
        ],
    )


def kind(variable: Variable) -> str:
    """Return what a variable is, in a few words."""
    inner = variable.type
    if variable.key is not None:
        inner = f"{variable.key}, {inner}"
    short = inner if variable.kind == "value" else f"{variable.kind}<{inner}>"
    if variable.ttl_us is not None:
        short += f" for {text.duration(variable.ttl_us / 1e6)}"
    return short if variable.scope == "key" else f"{short} per {variable.scope}"


def _summary(state: OperatorState) -> dict[str, Any]:
    return {
        "keys": state.keys,
        "entries": state.entries,
        "bytes": sum(f.bytes for f in state.files),
        "files": len(state.files),
        "variables": {
            n: {
                "kind": v.kind,
                "type": v.type,
                "key": v.key,
                "scope": v.scope,
                "ttl_us": v.ttl_us,
                "default": v.default,
            }
            for n, v in state.variables.items()
        },
    }


class _View:
    """The entries of one operator at one epoch, optionally of one key."""

    def __init__(
        self, catalog: Catalog, manifest: Manifest, uid: str, key: str | None
    ) -> None:
        from riverlock.query.keys.key_spans import place_of
        from riverlock.query.keys.typed import typed_key
        from riverlock.snapshot.state_reader import operator_of, read_entries

        self._store = catalog.storage.uri
        self._state = operator_of(manifest, uid, store=self._store)
        self._uid, self._epoch, self._key = uid, manifest.epoch, key
        place = None
        if key is not None:
            typed = typed_key(key, self._state)
            place = place_of(typed, self._state, manifest.key_groups)
        found = read_entries(
            catalog.storage,
            self._state,
            now_us=manifest.now_us,
            span=None if place is None else place.span,
        )
        if found is not None and place is not None:
            found = place.of(found)
        self._entries = found

    def _rows(self, name: str) -> pa.Table | None:
        from riverlock.query.views import View, checked_state

        checked_state(self._state, name, uid=self._uid, store=self._store)
        if self._entries is None:
            return None
        return View(self._state, name).rows(self._entries)

    def _heading(self) -> str:
        of = "" if self._key is None else f", key {self._key}"
        return f"operator {self._uid}{of}, epoch {self._epoch}"

    def show_variables(self, *, limit: int, as_json: bool) -> None:
        found = {n: self._rows(n) for n in (*self._state.variables, _TIMERS)}
        if as_json:
            parts = _summary(self._state)
            kinds = parts.pop("variables")
            parts["variables"] = {
                n: {**kinds.get(n, {"kind": "timers"}), **_page(rows, limit)}
                for n, rows in found.items()
            }
            head = {"epoch": self._epoch, "operator": self._uid, "key": self._key}
            text.print_json({**head, **parts})
            return
        click.echo(f"{self._heading()}; keys: {self._state.keys}")
        for name, rows in found.items():
            variable = self._state.variables.get(name)
            what = "pending" if variable is None else kind(variable)
            number = 0 if rows is None else rows.num_rows
            click.echo(f"\n{name} ({what}): {text.counted(number, 'row')}")
            if rows is not None and number and limit:
                _table(rows.slice(0, limit))

    def show_rows(self, name: str, *, limit: int, as_json: bool) -> None:
        rows = self._rows(name)
        page = _page(rows, limit)
        if as_json:
            head = {"epoch": self._epoch, "operator": self._uid, "state": name}
            text.print_json({**head, "key": self._key, **page})
            return
        number = text.counted(page["count"], "row")
        click.echo(f"{name} of {self._heading()}: {number}")
        if rows is None or not page["rows"]:
            return
        _table(rows.slice(0, limit))
        if page["count"] > limit:
            more = text.count(page["count"] - limit)
            click.echo(f"... {more} more; --limit N shows more, --out FILE writes all")

    def write(self, name: str, out: Path, *, as_json: bool) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = self._rows(name)
        if rows is None:
            rows = pa.table({})
        pq.write_table(rows, out)
        if as_json:
            text.print_json({"path": str(out), "count": rows.num_rows})
            return
        click.echo(f"wrote {text.counted(rows.num_rows, 'row')} to {out}")


def _page(rows: pa.Table | None, limit: int) -> dict[str, Any]:
    if rows is None:
        return {"count": 0, "rows": []}
    return {"count": rows.num_rows, "rows": _plain(rows.slice(0, limit))}


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    return python_rows(rows)


def _table(rows: pa.Table) -> None:
    text.table(rows.column_names, [list(row.values()) for row in _plain(rows)])
