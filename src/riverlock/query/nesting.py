"""One row per key: values side by side, lists and maps gathered.

Entries are sorted by id, so those of a key lie together, and the elements of a list are
in order: no grouping is needed, only the places where the key changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.types import type_of
from riverlock.core.values.json_values import from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pyarrow as pa

    from riverlock.snapshot.format.records import Variable

__all__ = ["nested"]


def nested(entries: pa.Table, variables: Mapping[str, Variable]) -> pa.Table:
    """Return a row for each key that has state: its columns, then the variables.

    A value that is not set has its default, as user code would read it.

    Args:
        entries: Live entries, sorted by id, that have all these variables.
        variables: Those to show; all of scope ``key``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    of_keys = pc.and_(
        pc.is_valid(entries["key"]), pc.not_equal(entries["entry"], "timer")
    )
    rows = entries.filter(of_keys).combine_chunks()
    keys = _flat(rows["key"])
    is_first = _is_first(keys, rows.num_rows)
    number = is_first.cumsum() - 1  # of the key, for each row
    count = int(is_first.sum())
    starts = pa.array(is_first)
    columns = [column.filter(starts) for column in keys]
    columns += [_column(rows, number, count, n, v) for n, v in variables.items()]
    # Names may repeat: a key column may bear the name of a variable.
    names = [*(f.name for f in rows.schema.field("key").type), *variables]
    return pa.Table.from_arrays(columns, names=names)


def _flat(column: Any) -> list[Any]:
    import pyarrow.compute as pc

    whole = column.combine_chunks()
    return [pc.struct_field(whole, [at]) for at in range(whole.type.num_fields)]


def _is_first(keys: list[Any], rows: int) -> np.ndarray:
    """Return whether each row begins a key."""
    import numpy as np

    found = np.zeros(rows, dtype=bool)
    found[:1] = True
    for column in keys:
        found[1:] |= ~_same(column.slice(0, max(rows - 1, 0)), column.slice(1))
    return found


def _same(before: Any, after: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    both_null = pc.and_(pc.is_null(before), pc.is_null(after))
    if pa.types.is_floating(before.type):
        # There is one NaN among keys, and it is equal to itself.
        nan = pc.and_(pc.is_nan(before), pc.is_nan(after))
        equal = pc.or_(pc.equal(before, after), nan)
    else:
        equal = pc.equal(before, after)
    filled = pc.coalesce(equal, pa.scalar(value=False))
    found: np.ndarray = pc.or_(filled, both_null).to_numpy(zero_copy_only=False)
    return found


def _column(
    rows: pa.Table, number: np.ndarray, count: int, name: str, variable: Variable
) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    data = pc.struct_field(rows["data"].combine_chunks(), name)
    is_set = pc.is_valid(data)
    places = number[is_set.to_numpy(zero_copy_only=False)]
    data = data.drop_null()
    if variable.kind not in ("list", "map"):
        # At most one of a key: its place among those set, or that of the default.
        default = from_json(type_of(variable.type), variable.default)
        data = pa.concat_arrays([data, pa.array([default], data.type)])
        taken = np.full(count, len(places), dtype=np.int64)
        taken[places] = np.arange(len(places))
        return data.take(pa.array(taken))
    sizes = np.bincount(places, minlength=count)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    values = pc.struct_field(data, "value")
    if variable.kind == "list":
        return pa.ListArray.from_arrays(offsets, values)
    return pa.MapArray.from_arrays(offsets, pc.struct_field(data, "key"), values)
