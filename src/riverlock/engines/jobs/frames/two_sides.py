"""Two frames as one, for an operator with two inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from riverlock.core.errors import InvalidFlowError
from riverlock.core.hidden_columns import HIDDEN, SIDE
from riverlock.core.types import schema_of
from riverlock.operators.input_sides import LEFT, RIGHT
from riverlock.program.two_inputs import LEFT_ROW, RIGHT_ROW, check_same_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from riverlock.program.graph import Connect

__all__ = ["connected"]


def connected(node: Connect, left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the rows of both frames: keys, a struct per side, hidden columns.

    Raises:
        InvalidFlowError: The keys do not fit.
    """
    for frame, keys in ((left, node.left_keys), (right, node.right_keys)):
        _check_columns(frame, keys)
    check_same_keys(node, schema_of(left.schema), schema_of(right.schema))
    names = node.left_keys
    lefts = _packed(left, dict(zip(node.left_keys, names, strict=True)), LEFT)
    rights = _packed(right, dict(zip(node.right_keys, names, strict=True)), RIGHT)
    return lefts.unionByName(rights, allowMissingColumns=True)


def _check_columns(frame: DataFrame, keys: tuple[str, ...]) -> None:
    for key in keys:
        if key not in frame.columns:
            raise InvalidFlowError(
                "connect()",
                expected=f"one of {', '.join(_shown(frame))}",
                found=repr(key),
            )


def _shown(frame: DataFrame) -> list[str]:
    return [c for c in frame.columns if c not in HIDDEN]


def _packed(frame: DataFrame, keys: dict[str, str], side: int) -> DataFrame:
    """Return keys under their common names, the row as a struct, and its side."""
    row = F.struct(*(F.col(f"`{c}`") for c in _shown(frame)))
    return frame.select(
        *(F.col(f"`{mine}`").alias(name) for mine, name in keys.items()),
        row.alias(LEFT_ROW if side == LEFT else RIGHT_ROW),
        F.lit(side).alias(SIDE),
        *(c for c in frame.columns if c in HIDDEN),
    )
