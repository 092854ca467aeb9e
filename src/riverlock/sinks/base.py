"""What a flow says about an output; committing it is the engine's work."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Sink"]


@runtime_checkable
class Sink(Protocol):
    """A participant in the two-phase commit of an epoch.

    Tasks stage rows (``Stager``), the driver commits what was voted for after the
    manifest is decided, as often as it takes (``Committer``). A sink is described by a
    frozen value; stager and committer are found by the value's type.
    """

    @property
    def kind(self) -> str:
        """A short name for status and manifests."""
        ...
