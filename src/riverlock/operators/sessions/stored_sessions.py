"""Sessions of many keys as columns, and how the state of a key holds them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, pairwise, starmap
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from riverlock.core.times import from_micros
from riverlock.operators.aggregates.merging import state_array
from riverlock.operators.aggregates.pairwise import Column, Rounds, is_numeric
from riverlock.operators.aggregates.partial import columns_of, merges_of
from riverlock.operators.sessions.time_spans import Instants, runs_of
from riverlock.state.codec import codec_of, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from riverlock.operators.aggregates.partial import PartialAggregate
    from riverlock.state.layout import StateLayout

__all__ = ["SessionColumns", "StoredSessions"]

_INSTANT = pa.timestamp("us", tz="UTC")
# Start, end and whether it has emitted; then what a session holds.
_BOUNDS = 3


@dataclass(frozen=True)
class SessionColumns:
    """Sessions: the place of the key, from when to when, and the partial columns."""

    places: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    given: np.ndarray
    # Whether records of this epoch are in them.
    changed: np.ndarray
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.places)

    def take(self, places: np.ndarray) -> SessionColumns:
        """Return some of them."""
        columns = {n: c.take(places) for n, c in self.columns.items()}
        return SessionColumns(
            self.places[places],
            self.begins[places],
            self.ends[places],
            self.given[places],
            self.changed[places],
            columns,
        )

    def and_also(self, other: SessionColumns) -> SessionColumns:
        """Return these and others."""
        return SessionColumns(
            np.concatenate([self.places, other.places]),
            np.concatenate([self.begins, other.begins]),
            np.concatenate([self.ends, other.ends]),
            np.concatenate([self.given, other.given]),
            np.concatenate([self.changed, other.changed]),
            {n: c.and_also(other.columns[n]) for n, c in self.columns.items()},
        )

    def spans(self) -> list[tuple[int, int, int]]:
        """Return the place of the key, begin and end of each."""
        each = (self.places, self.begins, self.ends)
        return list(zip(*(column.tolist() for column in each), strict=True))

    def timers(self, lateness_us: int) -> Instants:
        """Return when each key is next checked: the last instant of one is over."""
        times = self.ends - 1 + np.where(self.given, lateness_us, 0)
        is_first = np.ones(len(self), dtype=bool)
        is_first[1:] = self.places[1:] != self.places[:-1]
        starts = np.flatnonzero(is_first)
        if not len(starts):
            return Instants(self.places, times)
        return Instants(self.places[starts], np.minimum.reduceat(times, starts))


class StoredSessions:
    """Between columns and the list of structs that ``Sessions`` declares."""

    def __init__(
        self, layout: StateLayout, aggregates: Mapping[str, PartialAggregate]
    ) -> None:
        """Take the content of a session."""
        self._row = layout.rows["key"]
        (self._codec,) = self._row.codecs
        element = self._codec.type.element
        assert element is not None
        self._struct = codec_of(element).python
        self.kinds = columns_of(aggregates)
        self._merges = merges_of(aggregates)
        self.is_numeric = {n: is_numeric(m) for m in self._merges for n in m.columns}

    def loaded(self, payloads: Sequence[bytes | None]) -> SessionColumns:
        """Return the sessions of keys, in their order."""
        decode = self._row.decode
        lists = [() if p is None else decode(p)[0] for p in payloads]
        places = np.repeat(np.arange(len(lists)), list(map(len, lists)))
        rows = map(msgspec.structs.astuple, chain.from_iterable(lists))
        found = list(zip(*rows, strict=True)) or [()] * (_BOUNDS + len(self.kinds))
        begins, ends, given, *values = found
        columns = {
            name: Column.of_list(column, kind, is_numeric=self.is_numeric[name])
            for (name, kind), column in zip(self.kinds.items(), values, strict=True)
        }
        times, changed = (_micros(begins), _micros(ends)), np.zeros(len(places), bool)
        is_given = np.array(given, dtype=bool)
        return SessionColumns(places, *times, is_given, changed, columns)

    def merged(self, sessions: SessionColumns) -> SessionColumns | None:
        """Merge those that overlap; None if columns cannot do it.

        Of sessions that start together, those that come first are merged first.
        """
        sessions = sessions.take(np.lexsort((sessions.begins, sessions.places)))
        runs = runs_of(sessions.places, sessions.begins, sessions.ends)
        rounds = Rounds(runs.lengths)
        columns: dict[str, Column] = {}
        for merge in self._merges:
            found = rounds.merged(merge, sessions.columns)
            if found is None:
                return None
            columns |= found
        first = runs.starts
        columns = {name: columns[name] for name in self.kinds}
        return SessionColumns(
            sessions.places[first],
            sessions.begins[first],
            runs.ends,
            # One that has grown will be given again.
            sessions.given[first] & (runs.lengths == 1),
            np.logical_or.reduceat(sessions.changed, first),
            columns,
        )

    def normal(self, sessions: SessionColumns) -> SessionColumns:
        """Return sessions whose values are as they are stored.

        Raises:
            TypeError, ValueError, ArithmeticError: One does not fit its type.
        """
        columns = {
            name: column if self.is_numeric[name] else self._normal(name, column)
            for name, column in sessions.columns.items()
        }
        return replace(sessions, columns=columns)

    def _normal(self, name: str, column: Column) -> Column:
        kind = self.kinds[name]
        values = codec_of(kind).from_arrow(column.as_list())
        return Column.of_list(values, kind, is_numeric=False)

    def payloads(self, sessions: SessionColumns, size: int) -> list[bytes | None]:
        """Return the stored rows of so many keys, None for those without sessions."""
        begins, ends = (
            list(map(from_micros, each.tolist()))
            for each in (sessions.begins, sessions.ends)
        )
        values = [column.as_list() for column in sessions.columns.values()]
        rows = zip(begins, ends, sessions.given.tolist(), *values, strict=True)
        structs = list(starmap(self._struct, rows))
        bounds = np.searchsorted(sessions.places, np.arange(size + 1)).tolist()
        return [
            encode((structs[begin:end],)) if begin < end else None
            for begin, end in pairwise(bounds)
        ]

    def array(self, sessions: SessionColumns, keys: np.ndarray, uid: str) -> pa.Array:
        """Return the stored rows of some keys as a column; null without sessions."""
        kind = self._codec.type.to_arrow()
        mine = sessions.take(np.flatnonzero(np.isin(sessions.places, keys)))
        counts = np.diff(np.searchsorted(mine.places, np.append(keys, keys[-1:] + 1)))
        times = (
            pa.array(each, pa.int64()).cast(_INSTANT)
            for each in (mine.begins, mine.ends)
        )
        values = [
            state_array(each, mine.columns[name].as_list(), name, uid)
            for name, each in self.kinds.items()
        ]
        arrays = [*times, pa.array(mine.given, pa.bool_()), *values]
        structs = pa.StructArray.from_arrays(arrays, fields=list(kind.value_type))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(
            pa.array(offsets), structs, type=kind, mask=pa.array(counts == 0)
        )


def _micros(times: Sequence[Any]) -> np.ndarray:
    found: np.ndarray = pa.array(times, _INSTANT).cast(pa.int64()).to_numpy()
    return found
