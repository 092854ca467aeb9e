"""State as data: the entries of an operator at an epoch, with nothing but files."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import SnapshotNotFoundError
from riverlock.snapshot.format.parts import read_parts
from riverlock.snapshot.format.state_files import live, merge_tables, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from riverlock.snapshot.format.parts import IdSpan
    from riverlock.snapshot.format.records import Manifest, OperatorState, StateFile
    from riverlock.storage.base import Storage

__all__ = [
    "entries_in",
    "merged_entries",
    "operator_of",
    "read_entries",
    "read_variable",
]


def operator_of(manifest: Manifest, uid: str, *, store: str) -> OperatorState:
    """Return the state record of an operator.

    Raises:
        SnapshotNotFoundError: There is no such operator.
    """
    try:
        return manifest.operators[uid]
    except KeyError:
        close = difflib.get_close_matches(uid, manifest.operators, n=1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise SnapshotNotFoundError.among(
            f"operator {uid!r}{meant}",
            store=store,
            kind="operator",
            names=manifest.operators,
        ) from None


def read_entries(
    storage: Storage, state: OperatorState, *, now_us: int, span: IdSpan | None = None
) -> pa.Table | None:
    """Return the live entries (format §5), or None if there never were any.

    Args:
        storage: The store.
        state: What a manifest says of the operator.
        now_us: Processing time of that epoch; what expired by then is left out.
        span: Only entries whose ids are in it; only what can hold some is read.

    Raises:
        SnapshotCorruptedError: A file is missing or altered.
    """
    found = merged_entries(storage, state.files, span)
    return None if found is None else live(found, now_us)


def merged_entries(
    storage: Storage, files: Iterable[StateFile], span: IdSpan | None
) -> pa.Table | None:
    """Return the newest entry of each id, tombstones too; None without files.

    Raises:
        SnapshotCorruptedError: A file is missing or altered.
    """
    ordered = sorted(files, key=lambda f: (f.first_epoch, f.last_epoch))
    if span is not None:
        ordered = [f for f in ordered if span.meets_file(f)]
    if not ordered:
        return None
    return merge_tables([entries_in(storage, f, span) for f in ordered])


def entries_in(storage: Storage, file: StateFile, span: IdSpan | None) -> pa.Table:
    """Return the entries of a file in a span of ids; reads what can hold some.

    Raises:
        SnapshotCorruptedError: The file is missing or altered.
    """
    if span is None:
        return read_table(storage, file)
    if file.footer is not None:
        return read_parts(storage, file, span)
    return span.of(read_table(storage, file))


def read_variable(entries: pa.Table, state: OperatorState, name: str) -> pa.Table:
    """Return one variable as columns: the key, then index or map key, then value.

    A variable per key group has the group in place of the key, one that everybody
    shares has neither. ``timers`` names the pending timers.
    """
    import pyarrow.compute as pc

    if name == "timers":
        rows = entries.filter(pc.equal(entries["entry"], "timer"))
        return _with_keys(rows, _unnest(rows["timer"]))
    variable = state.variables[name]
    if variable.kind in ("list", "map") or variable.ttl_us is not None:
        rows = entries.filter(pc.equal(entries["variable"], name))
    else:
        rows = entries.filter(pc.equal(entries["entry"], "values"))
    column = pc.struct_field(rows["data"].combine_chunks(), name)
    rows, column = rows.filter(pc.is_valid(column)), column.drop_null()
    found = _unnest(column) if variable.kind in ("list", "map") else {name: column}
    return _with_keys(rows, found, variable.scope)


def _unnest(column: Any) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return {f.name: pc.struct_field(column, f.name) for f in column.type}


def _with_keys(rows: pa.Table, columns: dict[str, Any], scope: str = "key") -> pa.Table:
    import pyarrow as pa

    keys: dict[str, Any] = {}
    if scope == "key":
        keys = _unnest(rows["key"])
    elif scope == "group":
        keys = {"key_group": rows["key_group"]}
    # A key column may bear the name of a state column; both are kept.
    named = {(n if n not in columns else f"key.{n}"): c for n, c in keys.items()}
    return pa.table({**named, **columns})
