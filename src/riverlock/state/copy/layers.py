"""Rows of several epochs, one layer over the other: the newest that has an id is right.

A layer is two Arrow columns. Tens of thousands of rows are found in them, or merged,
in a few milliseconds; as a dict of bytes they would cost as much to make, to merge and
to free again, for every worker that sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.state.columns.key_columns import ordinals_of
from riverlock.state.columns.packed import bytes_of
from riverlock.state.columns.python_rows import first_places

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DELETED", "Layer", "Layers"]

# The row of an id that is gone; no row that is there is empty.
DELETED: Final = b""
# A key that is in none of them is looked for in each; merging costs as much as that.
_MAX_LAYERS = 4
# So many single ids are looked for in columns before a dict is made of them.
_FEW = 20


@dataclass(frozen=True)
class Layer:
    """Ids, none of them twice, and their rows."""

    ids: pa.BinaryArray
    rows: pa.BinaryArray

    @classmethod
    def of(cls, ids: Sequence[bytes], rows: Sequence[bytes]) -> Layer:
        """Make a layer of lists."""
        return cls(pa.array(ids, pa.binary()), pa.array(rows, pa.binary()))

    @cached_property
    def ordinals(self) -> np.ndarray:
        """The numbers that order the ids, if they are ordered."""
        return ordinals_of(self.ids)

    @property
    def are_gone(self) -> np.ndarray:
        """Which of the rows are DELETED."""
        found: np.ndarray = np.diff(bytes_of(self.rows)[1]) == 0
        return found

    def where(self, chosen: np.ndarray) -> Layer:
        """Return the rows that are chosen."""
        if chosen.all():
            return self
        mask = pa.array(chosen)
        return Layer(self.ids.filter(mask), self.rows.filter(mask))

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
        # No older store has ordinals greater than this; None: it may.
        self.floor: int | None = None
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
            self._layers = [
                self._without_gone(Layer(ids.take(first), rows.take(first)))
            ]
        return self._layers[0]

    def _without_gone(self, layer: Layer) -> Layer:
        """Leave out rows that have come and gone above the store below."""
        if self.floor is None or not len(layer.ids):
            return layer
        return layer.where(~layer.are_gone | (layer.ordinals <= self.floor))

    def as_dict(self) -> dict[bytes, bytes]:
        """Return all rows by id, DELETED ones too; not to be changed."""
        if self._index is None:
            self._index = dict(zip(*self.merged().as_lists(), strict=True))
        return self._index

    def between(self, after: int | None, until: int) -> Layers:
        """Return the rows of a span of ordinals."""
        found = Layers()
        for layer in self._layers:
            ordinals = layer.ordinals
            is_within = ordinals <= until
            if after is not None:
                is_within &= ordinals > after
            if is_within.any():
                found._layers.append(layer.where(is_within))
        return found

    def last_ordinal(self) -> int | None:
        """Return the greatest ordinal, even of a row that is gone."""
        every = [layer.ordinals for layer in self._layers if len(layer.ids)]
        return max((int(mine.max()) for mine in every), default=None)

    def first_seen(self, layer: Layer) -> int | None:
        """Return the least ordinal in an older layer that is not DELETED here."""
        if not len(layer.ids):
            return None
        lengths = pc.binary_length(self.find_ordered(layer.ids))
        is_seen = pc.fill_null(pc.greater(lengths, 0), True)  # noqa: FBT003 - a value
        seen = layer.ordinals[is_seen.to_numpy(zero_copy_only=False)]
        return int(seen.min()) if len(seen) else None

    def under(self, layer: Layer) -> None:
        """Put a layer below all others."""
        self._layers.append(layer)

    def first_ordinal(self, after: int) -> int | None:
        """Return the least ordinal that is greater, even of a row that is gone."""
        later = [layer.ordinals[layer.ordinals > after] for layer in self._layers]
        return min((int(mine.min()) for mine in later if len(mine)), default=None)

    def find_ordered(self, ids: pa.BinaryArray) -> pa.BinaryArray:
        """Return the rows of ids, or DELETED; null for unknown ones."""
        asked, left = ids, np.arange(len(ids))
        wanted = ordinals_of(ids)
        span = (int(wanted.min()) - 1, int(wanted.max())) if len(ids) else (0, 0)
        # Of all that is found: the place of the id, and the row.
        places = [np.array([], dtype=np.int64)]
        rows = [pa.array([], pa.binary())]
        # Rows of other ordinals, which may be many, need not be looked through.
        for layer in self.between(*span)._layers:
            if not len(left):
                break
            mine, here = layer.find(asked)
            places.append(left[mine])
            rows.append(layer.rows.take(pa.array(here)))
            is_left = np.ones(len(left), dtype=bool)
            is_left[mine] = False
            left, asked = left[is_left], asked.filter(pa.array(is_left))
        from_places = np.concatenate(places)
        indices = np.zeros(len(ids), dtype=np.int64)
        indices[from_places] = np.arange(len(from_places))
        is_missing = np.ones(len(ids), dtype=bool)
        is_missing[from_places] = False
        return pa.concat_arrays(rows).take(pa.array(indices, mask=is_missing))

    def get(self, entry_id: bytes) -> bytes | None:
        """Return the row of an id, or DELETED; None if it is unknown."""
        if self._index is None and self._gets < _FEW:
            self._gets += 1
            return self.get_many([entry_id])[0]
        return self.as_dict().get(entry_id)

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return the rows of some ids, or DELETED; None for unknown ones."""
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
