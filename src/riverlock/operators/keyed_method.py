"""What a method of a keyed stream can do: the base of the methods beside operators.

``rl.KeyedStream`` has a method for each operator. It stands in the operator's own
module, in a class derived from ``KeyedMethod``; ``methods`` lists these classes. So a
new operator is a new module here and a name there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.program.graph import Keyed

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.flow.stream import Stream
    from riverlock.program.graph import Node, Output
    from riverlock.program.process import KeyedLogic
    from riverlock.program.program import Program

__all__ = ["KeyedMethod"]


class KeyedMethod:
    """A stream, divided by key, to which operators are applied.

    Attributes:
        _program: What the operator becomes a part of.
        _node: What it reads.
        _columns: The columns of its input; None: told by Spark when the flow is
            compiled.
        _keys: The columns of its key.
    """

    _program: Program
    _node: Node
    _columns: Schema | None
    _keys: tuple[str, ...]

    def _check_column(self, what: str, name: str) -> None:
        """Refuse a column that the input is known not to have."""
        raise NotImplementedError

    def _same_flow(self, other: object, what: str) -> None:
        """Refuse a stream of another flow."""
        raise NotImplementedError

    def _stream(self, node: Output, columns: Schema | None) -> Stream:
        """Return the rows that an operator emits as a stream."""
        raise NotImplementedError

    def _apply(
        self,
        kind: str,
        process: KeyedLogic[Any] | None,
        uid: str | None,
        *,
        output: Schema | None = None,
        **work: Any,
    ) -> Stream:
        """Add an operator to the program; return its main output.

        Args:
            kind: What a uid is made of if none is given.
            process: What it does with each key.
            uid: What the user gave.
            output: The columns of its rows; None: they begin with those of the key,
                whose types Spark tells later.
            work: Further fields of the node.
        """
        taken = self._program.take_uid(uid, kind)
        return self._add(taken, process, output=output, method=kind, **work)

    def _add(
        self,
        uid: str,
        process: KeyedLogic[Any] | None,
        *,
        output: Schema | None,
        **work: Any,
    ) -> Stream:
        """Add an operator whose uid is taken; return its main output."""
        every = {"input": self._node, "on_error": self._program.on_error, **work}
        node = Keyed(uid=uid, keys=self._keys, process=process, **every)
        return self._stream(self._program.add(node), output)
