"""What a flow says about an input; reading it is the engine's work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from riverlock.core.types import Schema

__all__ = ["Source"]


@runtime_checkable
class Source(Protocol):
    """A replayable input.

    A source names positions (*offsets*, JSON) and reads any range between two of them,
    as often as asked, with the same rows in the same order. It is described by a frozen
    value; the reader is found by the value's type.
    """

    @property
    def kind(self) -> str:
        """A short name for status and manifests."""
        ...

    @property
    def schema(self) -> Schema | None:
        """The columns, if known before Spark has looked."""
        ...
