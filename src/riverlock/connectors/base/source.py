"""What a flow says about an input; reading it is the engine's work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from riverlock.core.types import SchemaLike

__all__ = ["Source", "check_missing"]


@runtime_checkable
class Source(Protocol):
    """A replayable input.

    A source names positions (*offsets*, JSON) and reads any range between two of them,
    as often as asked, with the same rows in the same order. It is described by a frozen
    value; the reader is found by the value's type. It may have an attribute ``place``,
    a text without secrets that distinguishes it from others of its kind.
    """

    @property
    def kind(self) -> str:
        """A short name for status and manifests."""
        ...

    @property
    def schema(self) -> SchemaLike | None:
        """The columns, if known before Spark has looked."""
        ...


def check_missing(missing: str) -> None:
    """Check the policy for an input that does not exist.

    Raises:
        InvalidConfigError: It is neither ``fail`` nor ``wait``.
    """
    if missing not in ("fail", "wait"):
        raise InvalidConfigError(
            "missing", expected="fail or wait", found=repr(missing)
        )
