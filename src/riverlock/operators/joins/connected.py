"""Two keyed streams side by side, for a process over both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.core.keywords import told_methods
from riverlock.program.graph import Connect
from riverlock.program.process import check_process
from riverlock.program.two_inputs import TwoInputProcess, check_same_keys

if TYPE_CHECKING:
    from riverlock.connectors.base.sink import Sink
    from riverlock.flow.stream import Stream
    from riverlock.operators.keyed_method import KeyedMethod

__all__ = ["ConnectedStreams"]


@told_methods
class ConnectedStreams:
    """Two keyed streams, to be handled by one process."""

    def __init__(self, left: KeyedMethod, right: KeyedMethod) -> None:
        """Made by ``connect``; checks what is known of the columns by now."""
        self._left = left
        self.node = Connect(
            left=left._node,
            right=right._node,
            left_keys=left._keys,
            right_keys=right._keys,
        )
        if left._columns and right._columns:
            check_same_keys(self.node, left._columns, right._columns)

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
        program = self._left._program
        taken = program.take_uid(uid, "process")
        output = check_process(process, taken)
        for method in ("on_left", "on_right"):
            _check_has(process, method, taken)
        on_error = on_error or program.on_error
        return self._left._add(
            taken, process, output=output, input=self.node, on_error=on_error
        )


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
