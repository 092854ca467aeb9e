"""What a keyed stream can do with another one: ``connect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.flow.connect import ConnectedStreams

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.flow.graph import Keyed
    from riverlock.flow.stream import Stream

__all__ = ["Joinable"]


class Joinable:
    """The part of ``KeyedStream`` that takes a second stream."""

    stream: Stream
    keys: tuple[str, ...]

    def _keyed(self, node: Keyed, output: Schema | None) -> Stream:
        raise NotImplementedError

    def connect(self, other: Joinable) -> ConnectedStreams:
        """Put two streams side by side: ``left.connect(right).process(...)``.

        Their keys pair up in order and must have equal types; names may differ.
        """
        self.stream._same_flow(_checked(other).stream, "connect")
        return ConnectedStreams(self, other)


def _checked(other: Joinable) -> Joinable:
    if not isinstance(other, Joinable):
        raise InvalidFlowError(
            "other stream of connect or a join",
            expected="a keyed stream",
            found=type(other).__name__,
            hint="key it by what both sides share: .key_by(...)",
        )
    return other
