"""Rows of several epochs, one layer over the other: the newest that has an id is right.

A layer is two Arrow columns. Tens of thousands of rows are found in them, or merged,
in a few milliseconds; as a dict of bytes they would cost as much to make, to merge and
to free again, for every worker that sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.runtime.columns import first_places

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DELETED", "Layer", "Layers"]

# The row of an id that is gone; no row that is there is empty.
DELETED: Final = b""
# A key that is in none of them is looked for in each; merging costs as much as that.
_MAX_LAYERS = 4
# So many single ids are looked for in columns before a dict is made of them.
_FEW = 20
# Longer than any id: Arrow 26 fails if it is to slice up to the end.
_MAX_ID = 1 << 16


@dataclass(frozen=True)
class Layer:
    """Ids, none of them twice, and their rows."""

    ids: pa.BinaryArray
    rows: pa.BinaryArray

    @classmethod
    def of(cls, ids: Sequence[bytes], rows: Sequence[bytes]) -> Layer:
        """Make a layer of lists."""
        return cls(pa.array(ids, pa.binary()), pa.array(rows, pa.binary()))

    def as_lists(self) -> tuple[list[bytes], list[bytes]]:
        """Return ids and rows as Python has them."""
        return self.ids.to_pylist(), self.rows.to_pylist()

    def find(self, ids: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
        """Return which of some ids are here, and where."""
        # The smaller side is the one to make a hash table of.
        if len(ids) < len(self.ids) // 4:
            here, asked = _matches(self.ids, ids)
        else:
            asked, here = _matches(ids, self.ids)
        return asked, here


def _concatenated(columns: list[pa.BinaryArray]) -> pa.BinaryArray:
    return pa.concat_arrays([pa.array([], pa.binary()), *columns])


def _matches(
    ids: pa.BinaryArray, among: pa.BinaryArray
) -> tuple[np.ndarray, np.ndarray]:
    places = pc.index_in(ids, value_set=among).fill_null(-1).to_numpy()
    matched = np.flatnonzero(places >= 0)
    return matched, places[matched]


class Layers:
    """A stack of layers."""

    def __init__(self) -> None:
        """Begin without any."""
        self._layers: list[Layer] = []  # newest first
        # Made when single ids are asked for again and again.
        self._index: dict[bytes, bytes] | None = None
        self._gets = 0

    @property
    def size(self) -> int:
        """How many rows are held, those that a newer layer hides included."""
        return sum(len(layer.ids) for layer in self._layers)

    def push(self, layer: Layer) -> None:
        """Put a layer on top."""
        self._layers.insert(0, layer)
        self._index, self._gets = None, 0
        if len(self._layers) > _MAX_LAYERS:
            self.merged()

    def merged(self) -> Layer:
        """Make one layer of all, and return it."""
        if len(self._layers) != 1:
            ids = _concatenated([layer.ids for layer in self._layers])
            rows = _concatenated([layer.rows for layer in self._layers])
            first = pa.array(first_places(ids.dictionary_encode().indices.to_numpy()))
            self._layers = [Layer(ids.take(first), rows.take(first))]
        return self._layers[0]

    def as_dict(self) -> dict[bytes, bytes]:
        """Return all rows by id, DELETED ones too; not to be changed."""
        if self._index is None:
            self._index = dict(zip(*self.merged().as_lists(), strict=True))
        return self._index

    def between(self, low: bytes, high: bytes) -> Layer:
        """Return the rows whose ids, behind the key group, lie in a span."""
        layer = self.merged()
        behind = pc.binary_slice(layer.ids, 2, _MAX_ID)
        within = pc.and_(
            pc.greater_equal(behind, pa.scalar(low, pa.binary())),
            pc.less(behind, pa.scalar(high, pa.binary())),
        )
        return Layer(layer.ids.filter(within), layer.rows.filter(within))

    def get(self, entry_id: bytes) -> bytes | None:
        """Return the row of an id, or DELETED; None if nothing is known of it."""
        if self._index is None and self._gets < _FEW:
            self._gets += 1
            return self.get_many([entry_id])[0]
        return self.as_dict().get(entry_id)

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return the rows of some ids, or DELETED; None if nothing is known of one."""
        asked = pa.array(ids, pa.binary())
        left = np.arange(len(ids))
        found = np.full(len(ids), None, dtype=object)
        for layer in self._layers:
            if not len(left):
                break  # usually the newest few have all
            mine, here = layer.find(asked)
            rows = layer.rows.take(pa.array(here))
            found[left[mine]] = rows.to_numpy(zero_copy_only=False)
            is_left = np.ones(len(left), dtype=bool)
            is_left[mine] = False
            left, asked = left[is_left], asked.filter(pa.array(is_left))
        rows_found: list[bytes | None] = found.tolist()
        return rows_found
