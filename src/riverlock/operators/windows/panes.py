"""Panes of sliding windows that a process remembers from epoch to epoch.

When a window of sixty panes ends, all but the newest were read when the one before it
ended. To read them again, to check and decode them and to find whose they are takes far
longer than to merge them. So they stay in memory as columns, with numbers for keys,
beside the working copy they were read from, and follow it from version to version.

It is a cache of the copy: at a version, what is here is what the copy has at that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.operators.aggregates.merging import Column, state_array, stored_columns
from riverlock.state.columns.key_columns import ordinals_of, without_ordinal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from riverlock.state.copy.layers import Layer
    from riverlock.state.layout import StateLayout
    from riverlock.state.store import StateReader, Version

__all__ = ["BEGINNING", "Pane", "Panes", "as_table", "by_end", "joined"]

# Before any window ends.
BEGINNING: Final = -(1 << 62)
# What does not fit is read whenever it is needed.
_MAX_BYTES = 128 << 20
# Fewer keys than these, which no pane has any more, are not worth a search.
_FEW_KEYS = 1000


@dataclass(frozen=True)
class Pane:
    """Rows of one pane: whose they are, by the numbers of keys, and the columns."""

    codes: np.ndarray
    table: pa.Table

    @property
    def size_bytes(self) -> int:
        """How much memory it takes."""
        found: int = self.codes.nbytes + self.table.nbytes
        return found

    def take(self, places: np.ndarray) -> Pane:
        """Return some of the rows."""
        return Pane(self.codes[places], self.table.take(pa.array(places)))

    def without(self, codes: np.ndarray) -> Pane:
        """Return the rows of all other keys."""
        return self.take(np.flatnonzero(~np.isin(self.codes, codes)))


def joined(parts: Sequence[Pane]) -> Pane:
    """Return the rows of some panes, at least one, concatenated."""
    codes = np.concatenate([part.codes for part in parts])
    return Pane(codes, pa.concat_tables([part.table for part in parts]))


def as_table(columns: Mapping[str, Column], layout: StateLayout, uid: str) -> pa.Table:
    """Return partial columns as Arrow has them.

    Raises:
        StateTypeError: A value does not fit.
    """
    row = layout.rows["key"]
    return pa.table(
        {
            name: state_array(codec.type, columns[name], name, uid)
            for name, codec in zip(row.names, row.codecs, strict=True)
        }
    )


def by_end(ends: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each end of a pane, earliest first, and the places of its rows."""
    order = np.argsort(ends, kind="stable")
    distinct, first = np.unique(ends[order], return_index=True)
    return zip(distinct.tolist(), np.split(order, first[1:]), strict=True)


class Panes:
    """All panes of a working copy, at one version, that end in some span of time."""

    def __init__(self) -> None:
        """Begin with none, at no version."""
        self._version: Version | None = None
        self.forget()

    def forget(self) -> None:
        """Drop everything."""
        # Ids of keys, without a window: the number of a key is its place.
        self.keys = pa.array([], pa.binary())
        self._panes: dict[int, Pane] = {}
        # All panes are here that end after the one and until the other.
        self._low = self._high = BEGINNING
        self._few_keys = _FEW_KEYS
        self._layout: StateLayout | None = None

    def be_at(self, version: Version | None) -> None:
        """Move to a version: drop what is known about any other one."""
        if version is None or self._version != version:
            self.forget()
            self._version = version

    def follow(self, layer: Layer, before: Version, after: Version) -> None:
        """Take the changes that lead from one version to the next."""
        if self._version != before:
            return  # of a version that is no longer on the way: ``be_at`` will see
        self._version = None  # should this fail, nothing is known
        if self._layout is not None:
            self._change(layer, self._layout)
        self._version = after

    def _change(self, layer: Layer, layout: StateLayout) -> None:
        ends = layer.ordinals
        near = layer.where((ends > self._low) & (ends <= self._high))
        if not len(near.ids):
            return
        codes, are_there = self.codes_of(near.ids), ~near.are_gone
        for end, places in by_end(near.ordinals):
            old = self._panes.pop(end, None)
            left = None if old is None else old.without(codes[places])
            new = places[are_there[places]]
            rows = near.rows.take(pa.array(new))
            parts = [_pane(codes[new], rows, layout)] if len(new) else []
            if left is not None and len(left.codes):
                parts.append(left)
            if parts:
                self._panes[end] = joined(parts)

    def codes_of(self, ids: pa.BinaryArray) -> np.ndarray:
        """Return the numbers of the keys of entries; new keys get new ones."""
        keys = without_ordinal(ids)
        found = pc.index_in(keys, value_set=self.keys)
        if found.null_count:
            is_new = found.is_null()
            new = keys.filter(is_new).dictionary_encode()
            numbers = pc.add(new.indices, pa.scalar(len(self.keys), pa.int32()))
            found = pc.replace_with_mask(found, is_new, numbers)
            self.keys = pa.concat_arrays([self.keys, new.dictionary])
        codes: np.ndarray = found.to_numpy()
        return codes

    def between(
        self, reader: StateReader, layout: StateLayout, span: tuple[int, int], kept: int
    ) -> dict[int, Pane]:
        """Return all panes that end in a span, by their ends.

        Args:
            reader: A view of the version.
            layout: How state is stored.
            span: They end after the one instant and until the other.
            kept: Panes that end until then need not be remembered.
        """
        after, until = span
        self._layout = layout
        self._drop_until(kept)
        if until > self._high:
            self._panes |= self._read(reader, layout, (self._high, until))
            self._high = until
        found = {e: p for e, p in self._panes.items() if after < e <= until}
        if after < self._low:
            # Of windows that had been given before: late rows have changed them.
            found |= self._read(reader, layout, (after, min(self._low, until)))
        self._shrink()
        return found

    def _drop_until(self, instant: int) -> None:
        self._low = max(self._low, instant)
        self._high = max(self._high, self._low)
        for end in [e for e in self._panes if e <= self._low]:
            del self._panes[end]
        if len(self.keys) > self._few_keys:
            self._drop_keys()

    def _drop_keys(self) -> None:
        """Number keys anew, without those that no pane has any more."""
        is_used = np.zeros(len(self.keys), dtype=bool)
        for pane in self._panes.values():
            is_used[pane.codes] = True
        number = np.cumsum(is_used, dtype=np.int32) - 1
        self.keys = self.keys.filter(pa.array(is_used))
        self._panes = {
            end: Pane(number[pane.codes], pane.table)
            for end, pane in self._panes.items()
        }
        self._few_keys = _FEW_KEYS + 2 * len(self.keys)

    def _read(
        self, reader: StateReader, layout: StateLayout, span: tuple[int, int]
    ) -> dict[int, Pane]:
        ids, rows = reader.span(*span)
        if not len(ids):
            return {}
        codes = self.codes_of(ids)
        return {
            end: _pane(codes[places], rows.take(pa.array(places)), layout)
            for end, places in by_end(ordinals_of(ids))
        }

    def _shrink(self) -> None:
        """Release the latest ones if they are too many."""
        size = sum(pane.size_bytes for pane in self._panes.values())
        for end in sorted(self._panes, reverse=True):
            if size <= _MAX_BYTES:
                return
            size -= self._panes.pop(end).size_bytes
            self._high = end - 1


def _pane(codes: np.ndarray, rows: pa.BinaryArray, layout: StateLayout) -> Pane:
    return Pane(codes, as_table(stored_columns(rows, layout), layout, ""))
