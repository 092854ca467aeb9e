"""Binds an operator, the user's or ours, to the columns of its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.types import schema_of
from riverlock.operators.base import UPDATES, BuiltIn
from riverlock.operators.shipped import MAIN
from riverlock.program.process import check_process, side_outputs
from riverlock.program.unkeyed import ALL_RECORDS

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.program.process import KeyedLogic

__all__ = ["Bound", "bound_to"]


@dataclass(frozen=True)
class Bound:
    """An operator that knows its input.

    Attributes:
        process: What runs.
        keys: The columns that its state is stored by.
        outputs: The columns of its outputs: main, then side outputs by name.
    """

    process: KeyedLogic[OperatorContext]
    keys: Schema
    outputs: dict[str, Schema]


def bound_to(
    process: KeyedLogic[Any],
    uid: str,
    keys: Schema,
    columns: Schema,
    *,
    has_updates: bool,
) -> Bound:
    """Return an operator for an input.

    Args:
        process: As the flow was built with it.
        uid: The operator, for errors.
        keys: The columns that the stream is divided by; none: it is not.
        columns: The columns of the input.
        has_updates: Whether somebody reads every change of its rows.

    Raises:
        InvalidFlowError: It cannot do its work on these columns, or is no process.
    """
    if isinstance(process, BuiltIn):
        made = process.bound(keys, columns)
        assert made.output is not None
        main = schema_of(made.output)
        outputs = {MAIN: main, **_sides(made)}
        if has_updates:
            outputs[UPDATES] = made.updated(main)
        return Bound(made, made.state_keys(keys), outputs)
    output = check_process(process, uid)
    outputs = _sides(process) if output is None else {MAIN: output, **_sides(process)}
    return Bound(process, keys if keys.fields else ALL_RECORDS, outputs)


def _sides(process: KeyedLogic[Any]) -> dict[str, Schema]:
    return {name: side.schema for name, side in side_outputs(type(process)).items()}
