"""Two keyed streams that share their keys: the input of a two-input operator.

Both sides travel as one stream: the key columns, then one struct column per side, of
which each row fills one. So everything that holds for one input (exchange, order,
state, timers, snapshots) holds for two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, Type
from riverlock.program.context import Context
from riverlock.program.process import ContextT, KeyedLogic, Process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.program.graph import Connect

__all__ = [
    "LEFT_ROW",
    "RIGHT_ROW",
    "LooksUp",
    "TwoInputProcess",
    "TwoSided",
    "check_same_keys",
    "packed_columns",
    "refuse_two_inputs",
]

# The struct columns in which the rows of the sides travel.
LEFT_ROW, RIGHT_ROW = "__rl_left", "__rl_right"


class TwoSided(KeyedLogic[ContextT]):
    """What users' processes over two streams and our joins have in common."""

    def on_left(self, record: Any, ctx: ContextT) -> Iterable[Any] | None:
        """Handle a record of the stream on which ``connect`` was called."""
        raise NotImplementedError

    def on_right(self, record: Any, ctx: ContextT) -> Iterable[Any] | None:
        """Handle a record of the stream that was passed to ``connect``."""
        raise NotImplementedError

    def on_event(self, record: Any, ctx: ContextT) -> Iterable[Any] | None:
        """Pass a record to the handler of its side."""
        if record._rl_is_right:
            return self.on_right(record, ctx)
        return self.on_left(record, ctx)


class TwoInputProcess(TwoSided[Context], Process):
    """Keyed logic over two streams: both handlers see the same state and timers.

    Of the records that a key has in an epoch, those of the right side come first, then
    those of the left, each in input order: the right side is usually the one that is
    looked up. Between epochs the order is that of arrival.
    """


class LooksUp(TwoSided[Any]):
    """Marks operators that only look up right rows, whose times do not matter."""


def refuse_two_inputs(process: object, uid: str) -> None:
    """Refuse a process that needs a second stream.

    Raises:
        InvalidFlowError: It is one.
    """
    if isinstance(process, TwoInputProcess):
        raise InvalidFlowError(
            f"process of operator {uid!r}",
            expected="a Process",
            found=f"{type(process).__name__}, a TwoInputProcess",
            hint="give it two streams: left.connect(right).process(...)",
        )


def check_same_keys(node: Connect, left: Schema, right: Schema) -> None:
    """Refuse keys that cannot be equal; their names may differ.

    Raises:
        InvalidFlowError: Their number or types differ.
    """
    mine = [left[k].ddl for k in node.left_keys]
    theirs = [right[k].ddl for k in node.right_keys]
    if mine != theirs:
        raise InvalidFlowError(
            f"keys {', '.join(node.left_keys)} and {', '.join(node.right_keys)}"
            " of connected streams",
            expected=f"equal types: {', '.join(mine)}",
            found=", ".join(theirs),
            hint="cast one of them before key_by",
        )


def packed_columns(keys: Schema, left: Schema, right: Schema) -> Schema:
    """Return the columns in which both sides travel."""
    sides = (
        Field(LEFT_ROW, Type("struct", fields=left.fields)),
        Field(RIGHT_ROW, Type("struct", fields=right.fields)),
    )
    return Schema((*keys.fields, *sides))
