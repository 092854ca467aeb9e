"""Keyed streams: where state lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.keywords import told_methods
from riverlock.flow.dstream import KeyedWindowOperations
from riverlock.flow.other_streams import Helpful
from riverlock.flow.windowable import Windowable
from riverlock.operators.methods import KeyedMethods

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.flow.stream import Stream
    from riverlock.program.graph import Output

__all__ = ["KeyedStream"]


@told_methods
class KeyedStream(KeyedMethods, Windowable, KeyedWindowOperations, Helpful):
    """A stream partitioned by key: where state lives.

    Its methods stand beside their operators, in ``riverlock.operators``.
    """

    def __init__(self, stream: Stream, keys: tuple[str, ...]) -> None:
        """Made by ``key_by``."""
        self._whole = stream
        self._program = stream._program
        self._node = stream._node
        self._columns = stream._schema
        self._keys = keys

    def _check_column(self, what: str, name: str) -> None:
        self._whole._check_column(what, name)

    def _same_flow(self, other: object, what: str) -> None:
        self._whole._same_flow(other, what)

    def _stream(self, node: Output, columns: Schema | None) -> Stream:
        return self._whole._next(node, columns)

    def _to_window(self) -> tuple[Stream, tuple[str, ...]]:
        return self._whole, self._keys
