"""Rows that an operator cannot take: Python has no datetime for one of their times.

State and keys are Python values. A record with such a time in another column is
harmless until somebody reads it; in a key, or in what Spark has aggregated, it is known
beforehand: the row is a dead letter, or the epoch is refused before it writes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riverlock.core.errors import TimeRangeError
from riverlock.core.hidden_columns import HIDDEN, SIDE
from riverlock.core.values.arrow_values import (
    FarValue,
    far_in,
    first_far,
    python_values,
)
from riverlock.operators.boundary import shown
from riverlock.operators.input_sides import SidedRecords
from riverlock.state.columns.python_rows import records

if TYPE_CHECKING:
    from riverlock.operators.effects import DeadLetter
    from riverlock.operators.shipped import EpochInfo, OperatorProgram

__all__ = ["refuse_far", "without_far_keys"]


def refuse_far(table: pa.Table, program: OperatorProgram, info: EpochInfo) -> None:
    """Refuse rows of partial aggregates with a time that Python cannot represent.

    Raises:
        TimeRangeError: There is one.
    """
    visible = [name for name in table.column_names if name not in HIDDEN]
    far = first_far(table, visible)
    if far is not None:
        raise _refusal(far, table, program, info)


def without_far_keys(
    table: pa.Table, program: OperatorProgram, info: EpochInfo
) -> tuple[pa.Table, list[DeadLetter]]:
    """Return the rows whose keys Python can represent, and dead letters for the others.

    Raises:
        TimeRangeError: There are others, but no dead-letter sink.
    """
    far = first_far(table, program.keys.names)
    if far is None:
        return table, []
    if not program.has_dead_letters:
        raise _refusal(far, table, program, info, record=_record(table, far, program))
    letters = []
    columns = [python_values(table[name]) for name in program.keys.names]
    is_near = [not any(map(far_in, key)) for key in zip(*columns, strict=True)]
    for place in (n for n, near in enumerate(is_near) if not near):
        row = table.slice(place, 1)
        found = first_far(row, program.keys.names)
        assert found is not None
        error = _refusal(found, row, program, info)
        key, record = _key(found, row, program), _record(row, found, program)
        text = f"{type(error).__name__}: {error.message}"
        letters.append((program.uid, shown(key), info.epoch, text, "", record))
    return table.filter(pa.array(is_near)), letters


def _refusal(
    far: FarValue,
    table: pa.Table,
    program: OperatorProgram,
    info: EpochInfo,
    record: str | None = None,
) -> TimeRangeError:
    return TimeRangeError(
        far.value,
        column=far.column,
        operator=program.uid,
        key=_key(far, table, program),
        record=record,
        epoch=info.epoch,
    )


def _key(far: FarValue, table: pa.Table, program: OperatorProgram) -> Any:
    names = [n for n in program.keys.names if n in table.column_names]
    row = table.slice(far.place, 1)
    values = tuple(python_values(row[name])[0] for name in names)
    return values[0] if len(values) == 1 else values or None


def _record(table: pa.Table, far: FarValue, program: OperatorProgram) -> str:
    row = table.slice(far.place, 1)
    rows = SidedRecords.of if SIDE in row.column_names else records
    return shown(next(iter(rows(row, program.input)), None))
