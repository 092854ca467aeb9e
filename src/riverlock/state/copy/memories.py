"""What operators remember of a working copy, from epoch to epoch.

A memory belongs to its operator, which alone knows what is in it. Whoever moves the
copy tells its memories: at a version, what is remembered is what the copy has there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from riverlock.state.copy.layers import Layer
    from riverlock.state.store import Version

__all__ = ["Memories", "Memory"]


class Memory(Protocol):
    """What an operator remembers of a working copy, in one process.

    Made without arguments. It is a cache: it may be dropped at any time, and results
    must not depend on it.
    """

    def be_at(self, version: Version | None) -> None:
        """Move to a version: drop what is known about any other one.

        None is the version of nothing: everything is dropped.
        """

    def follow(self, layer: Layer, before: Version, after: Version) -> None:
        """Take the changes that lead from one version to the next.

        At another version than ``before`` it does nothing: ``be_at`` takes care of it.
        """


M = TypeVar("M", bound=Memory)


class Memories:
    """The memories of a working copy, by their kind; told wherever the copy goes."""

    def __init__(self) -> None:
        """Begin without any, at no version."""
        self._version: Version | None = None
        self._of: dict[type[Any], Memory] = {}

    def of(self, kind: type[M]) -> M:
        """Return the memory of a kind, at the version that is read."""
        if kind not in self._of:
            made = kind()
            made.be_at(self._version)
            self._of[kind] = made
        return cast("M", self._of[kind])

    def be_at(self, version: Version | None) -> None:
        """Say which version is read."""
        self._version = version
        for memory in self._of.values():
            memory.be_at(version)

    def follow(self, layer: Layer, before: Version, after: Version) -> None:
        """Say which changes lead from one version to the next."""
        for memory in self._of.values():
            memory.follow(layer, before, after)
