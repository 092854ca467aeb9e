"""State as data: the entries of an operator at an epoch, with nothing but files."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import SnapshotNotFoundError
from riverlock.snapshot.files import live, merge_tables, read_table

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.snapshot.records import Manifest, OperatorState
    from riverlock.storage.base import Storage

__all__ = ["operator_of", "read_entries", "read_variable"]


def operator_of(manifest: Manifest, uid: str, *, store: str) -> OperatorState:
    """Return the state record of an operator.

    Raises:
        SnapshotNotFoundError: There is no such operator.
    """
    try:
        return manifest.operators[uid]
    except KeyError:
        close = difflib.get_close_matches(uid, manifest.operators, n=1)
        known = ", ".join(manifest.operators) or "no operator with state"
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise SnapshotNotFoundError(
            f"operator {uid!r}{meant}", store=store, available=known
        ) from None


def read_entries(
    storage: Storage, state: OperatorState, *, now_us: int
) -> pa.Table | None:
    """Return all live entries (format §5), or None if there never were any.

    Args:
        storage: The store.
        state: What a manifest says of the operator.
        now_us: Processing time of that epoch; what expired by then is left out.

    Raises:
        SnapshotCorruptedError: A file is missing or altered.
    """
    if not state.files:
        return None
    files = sorted(state.files, key=lambda f: (f.first_epoch, f.last_epoch))
    return live(merge_tables([read_table(storage, f) for f in files]), now_us)


def read_variable(entries: pa.Table, state: OperatorState, name: str) -> pa.Table:
    """Return one variable as columns: the key, then index or map key, then value.

    ``timers`` names the pending timers.
    """
    import pyarrow.compute as pc

    if name == "timers":
        rows = entries.filter(pc.field("entry") == "timer")
        return _with_keys(rows, _unnest(rows["timer"]))
    variable = state.variables[name]
    rows = entries
    if variable.kind in ("list", "map") or variable.ttl_us is not None:
        rows = entries.filter(pc.field("variable") == name)
    else:
        rows = entries.filter(pc.field("entry") == "values")
    column = pc.struct_field(rows["data"].combine_chunks(), name)
    rows, column = rows.filter(pc.is_valid(column)), column.drop_null()
    if variable.kind in ("list", "map"):
        return _with_keys(rows, _unnest(column))
    return _with_keys(rows, {name: column})


def _unnest(column: Any) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return {f.name: pc.struct_field(column, f.name) for f in column.type}


def _with_keys(rows: pa.Table, columns: dict[str, Any]) -> pa.Table:
    import pyarrow as pa

    keys = _unnest(rows["key"])
    # A key column may bear the name of a state column; both are kept.
    named = {(n if n not in columns else f"key.{n}"): c for n, c in keys.items()}
    return pa.table({**named, **columns})
