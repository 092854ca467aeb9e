"""Two keyed streams that share their keys: what a two-input operator reads.

Both sides travel as one stream: the key columns, then one struct column per side, of
which each row fills one. So everything that holds for one input (exchange, order,
state, timers, snapshots) holds for two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, Type
from riverlock.program.graph import Connect, Keyed
from riverlock.program.process import Process, check_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.connectors.base.sink import Sink
    from riverlock.flow.joinable import Joinable
    from riverlock.flow.stream import Stream
    from riverlock.operators.keyed.context import Context

__all__ = [
    "LEFT_ROW",
    "RIGHT_ROW",
    "ConnectedStreams",
    "LooksUp",
    "TwoInputProcess",
    "check_same_keys",
    "packed_columns",
    "refuse_two_inputs",
]

# The struct columns in which the rows of the sides travel.
LEFT_ROW, RIGHT_ROW = "__rl_left", "__rl_right"


class TwoInputProcess(Process):
    """Keyed logic over two streams: both handlers see the same state and timers.

    Of the records that a key has in an epoch, those of the right side come first, then
    those of the left, each in input order: the right side is usually the one that is
    looked up. Between epochs the order is that of arrival.
    """

    def on_left(self, record: Any, ctx: Context) -> Iterable[Any] | None:
        """Handle a record of the stream on which ``connect`` was called."""
        raise NotImplementedError

    def on_right(self, record: Any, ctx: Context) -> Iterable[Any] | None:
        """Handle a record of the stream that was given to ``connect``."""
        raise NotImplementedError

    def on_event(self, record: Any, ctx: Context) -> Iterable[Any] | None:
        """Give a record to the handler of its side."""
        if record._rl_is_right:
            return self.on_right(record, ctx)
        return self.on_left(record, ctx)


class LooksUp(TwoInputProcess):
    """Marks operators that only look up right rows, whose times do not matter."""


class ConnectedStreams:
    """Two keyed streams, to be handled by one process."""

    def __init__(self, left: Joinable, right: Joinable) -> None:
        """Made by ``connect``; checks what is known of the columns by now."""
        self._left = left
        self.node = Connect(
            left=left.stream.node,
            right=right.stream.node,
            left_keys=left.keys,
            right_keys=right.keys,
        )
        if left.stream.schema and right.stream.schema:
            check_same_keys(self.node, left.stream.schema, right.stream.schema)

    def process(
        self,
        process: TwoInputProcess,
        *,
        uid: str | None = None,
        on_error: Sink | None = None,
    ) -> Stream:
        """Run a ``TwoInputProcess`` over each key of both streams.

        Args:
            process: An instance of your class.
            uid: Stable name of its state; keep it when the code changes.
            on_error: A sink for records that make the process raise.
        """
        flow = self._left.stream.flow
        taken = flow.take_uid(uid, "process")
        output = check_process(process, taken)
        for method in ("on_left", "on_right"):
            _check_has(process, method, taken)
        node = Keyed(
            uid=taken,
            input=self.node,
            keys=self.node.left_keys,
            process=process,
            on_error=on_error or flow.on_error,
        )
        return self._left._keyed(node, output)


def _check_has(process: object, method: str, uid: str) -> None:
    if not isinstance(process, TwoInputProcess):
        raise InvalidFlowError(
            f"process of operator {uid!r}",
            expected="a TwoInputProcess",
            found=type(process).__name__,
            hint="a Process is for one stream: key_by(...).process(...)",
        )
    if getattr(type(process), method) is getattr(TwoInputProcess, method):
        raise InvalidFlowError(
            f"process of operator {uid!r}",
            expected=f"a method {method}",
            found=type(process).__name__,
        )


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
