"""Merges partial aggregates into state column by column, without a loop over keys.

What ``Aggregate`` says record by record, for numbers: it gives the same bits, because
NumPy's ``at`` adds one after the other too. Where it could not (a sum that may leave
64 bits, zeros of both signs) it declines, and the loop over records does it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from riverlock.flow.operators import Aggregate
from riverlock.runtime.execution import Execution
from riverlock.runtime.program import MAIN
from riverlock.state.changelog import ChangeLog
from riverlock.state.codec import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.runtime.inputs import KeyedInput
    from riverlock.runtime.program import EpochInfo, OperatorProgram
    from riverlock.state.layout import StateLayout
    from riverlock.state.store import StateReader

__all__ = ["Folding", "fold", "run_operator"]

_KINDS: Final = {"int": np.int64, "long": np.int64, "double": np.float64}
# Sums of whole numbers below this, added up as floats, are safe from overflow.
_SAFE: Final = float(1 << 62)


def fold(
    program: OperatorProgram, layout: StateLayout, data: KeyedInput
) -> Folding | None:
    """Merge the input of a task, if it is of a kind that columns can do."""
    process = program.process
    if not isinstance(process, Aggregate) or program.has_dead_letters:
        return None
    if data.table is None or not data.ids:
        return None
    if any(kind.kind not in _KINDS for kind, _ in process.parts.values()):
        return None
    names = layout.rows["key"].names
    places = np.repeat(np.arange(len(data.ids)), np.diff(data.bounds))
    after: list[list[Any]] = []
    for name, old in zip(names, _columns(data.payloads, layout), strict=True):
        kind, how = process.parts[name]
        with np.errstate(all="ignore"):  # infinity less infinity is NaN, as in Spark
            merged = _merged(data.table[name], places, old, _KINDS[kind.kind], how)
        if merged is None:
            return None
        after.append(merged)
    return Folding(program, layout, data, list(zip(*after, strict=True)))


def run_operator(  # noqa: PLR0913 - what an operator runs on
    program: OperatorProgram,
    layout: StateLayout,
    reader: StateReader,
    info: EpochInfo,
    data: KeyedInput | None,
    *,
    is_first: bool,
) -> Execution | Folding:
    """Run an operator over the input of a task, in the fastest way that fits.

    Raises:
        RiverlockError: See ``Execution.run``.
    """
    folded = None if data is None else fold(program, layout, data)
    if folded is not None:
        return folded
    execution = Execution(program, layout, reader, info, is_first=is_first)
    execution.run(data)
    return execution


def _columns(
    payloads: Sequence[bytes | None], layout: StateLayout
) -> list[tuple[Any, ...]]:
    """Return the stored values, one tuple per part; None where there is none."""
    row = layout.rows["key"]
    unset = (None,) * len(row.names)
    decode = row.decode
    return list(
        zip(*[unset if p is None else decode(p) for p in payloads], strict=True)
    )


def _merged(
    column: pa.ChunkedArray,
    places: np.ndarray,
    old: tuple[Any, ...],
    kind: type,
    how: str,
) -> list[Any] | None:
    """Return old values and new ones of the same place as one; None: declined."""
    known = np.array([v is not None for v in old])
    start, put = _START[how]
    merged: np.ndarray = np.full(len(old), start(kind), dtype=kind)
    merged[known] = [v for v in old if v is not None]
    valid = column.is_valid().to_numpy()
    values = column.drop_null().to_numpy().astype(kind)
    mine = places[valid]
    if how == "sum" and kind is np.int64:
        sizes = np.bincount(mine, np.abs(values.astype(float)), minlength=len(old))
        if np.any(sizes + np.abs(merged.astype(float)) >= _SAFE):
            return None
    if how != "sum" and any(
        np.any(np.signbit(v) & (v == 0)) for v in (values, merged[known])
    ):
        return None  # which of two zeros is kept, NumPy does not say
    put(merged, mine, values)
    known[mine] = True
    if known.all():
        found: list[Any] = merged.tolist()
        return found
    return [v if k else None for v, k in zip(merged.tolist(), known, strict=True)]


def _least(kind: type) -> Any:
    return np.iinfo(kind).min if kind is np.int64 else -np.inf


def _greatest(kind: type) -> Any:
    return np.iinfo(kind).max if kind is np.int64 else np.nan


# What changes nothing when merged, and how to merge. For Spark, NaN is greater than any
# number. -0.0 is the zero that any zero survives.
_START: Final[dict[str, Any]] = {
    "sum": (lambda kind: kind(-0.0), np.add.at),
    "min": (_greatest, np.fmin.at),
    "max": (_least, np.maximum.at),
}


class Folding:
    """What came of it, as ``Execution`` has it."""

    def __init__(
        self,
        program: OperatorProgram,
        layout: StateLayout,
        data: KeyedInput,
        rows: list[tuple[Any, ...]],
    ) -> None:
        """Log the rows that changed."""
        self.uid = program.uid
        self.dead: list[tuple[Any, ...]] = []
        self.log = ChangeLog(layout, program.uid)
        self._process, self._data, self._rows = program.process, data, rows
        self._names = layout.rows["key"].names
        self.log.changed_rows(data, rows, list(map(encode, rows)))

    @staticmethod
    def timer_head(kind: int) -> None:
        """Aggregates set no timers."""

    @cached_property
    def emitted(self) -> dict[str, list[tuple[Any, int | None]]]:
        """The results of all keys; made if somebody reads them."""
        assert isinstance(self._process, Aggregate)
        data = self._data
        columns = dict(zip(self._names, zip(*self._rows, strict=True), strict=True))
        results = self._process.finished(columns)
        rows = [
            key + values
            for key, values in zip(data.keys, zip(*results, strict=True), strict=True)
        ]
        times: list[int | None] = [None] * len(rows)
        if data.times is not None:
            times = [data.times[end - 1] for end in data.bounds[1:]]
        return {MAIN: list(zip(rows, times, strict=True))}
