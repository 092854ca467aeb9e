"""Key groups of many keys at once: the hash of ``state.keys``, by the column.

The engines that bring rows to tasks without Spark place every row by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from riverlock.columnar.hashes import hashes_of

if TYPE_CHECKING:
    from riverlock.core.types import Schema

__all__ = ["key_groups_of"]


def key_groups_of(table: pa.Table, keys: Schema, key_groups: int) -> np.ndarray:
    """Return the key group of each row, as Spark computes it."""
    columns = [(_whole(table[field.name]), field.type) for field in keys.fields]
    hashes = hashes_of(columns, table.num_rows)
    found: np.ndarray = np.mod(hashes, key_groups).astype(np.int32)
    return found


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    return column
