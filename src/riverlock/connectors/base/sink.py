"""What a flow says about an output; committing it is the engine's work."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import getattr_static
from typing import TYPE_CHECKING, Protocol, TypeGuard, runtime_checkable

from riverlock.core.errors import InvalidFlowError

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.stager import Stager
    from riverlock.core.types import Schema
    from riverlock.storage.base import Storage

__all__ = [
    "PASSING",
    "KeyedSink",
    "Making",
    "Probed",
    "Sink",
    "SinkUse",
    "TwoPhaseSink",
    "check_dead_letter_sink",
    "check_sink",
    "is_sink",
    "place_of",
]

# Kinds of sinks of which nothing outlasts the process.
PASSING = ("memory", "console")


@runtime_checkable
class Sink(Protocol):
    """A participant in the two-phase commit of an epoch.

    Tasks stage rows (``Stager``). After the manifest is decided, the driver commits
    what was voted for, as often as it takes (``Committer``). A sink is described by a
    frozen value; stager and committer are found by the value's type, or made by a
    ``TwoPhaseSink`` itself. It may have an attribute ``place``: see ``place_of``.
    """

    @property
    def kind(self) -> str:
        """A short name for status and manifests."""
        ...


def is_sink(value: object) -> TypeGuard[Sink]:
    """Tell a sink from values that answer to any name, such as Spark's columns."""
    return getattr_static(value, "kind", None) is not None


def check_sink(what: str, sink: object) -> None:
    """Refuse what is no sink.

    Raises:
        InvalidFlowError: It is none.
    """
    if is_sink(sink):
        return
    name = getattr(sink, "__name__", None)
    # Functions of rl.sinks stand beside what they make.
    is_ours = name and getattr(sink, "__module__", "").startswith("riverlock.")
    hint = f"call it: rl.sinks.{name}(...)" if is_ours else ""
    if isinstance(sink, str):
        hint = f'write rl.sinks.files({sink!r}, format="json")'
    raise InvalidFlowError(
        what, expected="a sink from rl.sinks", found=repr(sink), hint=hint
    )


def check_dead_letter_sink(what: str, sink: object) -> None:
    """Refuse what is no sink for dead letters; None is fine.

    Raises:
        InvalidFlowError: It is none.
    """
    if sink is not None:
        check_sink(what, sink)


def place_of(sink: Sink) -> str:
    """Return where a sink writes: its attribute ``place``.

    This is a text without secrets that distinguishes it from others of its kind; empty
    if it has none.
    """
    return str(getattr(sink, "place", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkUse:
    """How a flow uses a sink."""

    uid: str
    schema: Schema
    replaces: bool  # rows of an epoch take the place of all rows before


@runtime_checkable
class TwoPhaseSink(Sink, Protocol):
    """A sink that makes its own stager and committer: databases, or a user's own.

    Both are made before the first epoch, and may then refuse what will not work.
    """

    def stager(self, use: SinkUse) -> Stager:
        """Return the object that stages rows inside tasks.

        Raises:
            InvalidFlowError: The columns do not fit the sink.
        """
        ...

    def committer(self, use: SinkUse, storage: Storage) -> Committer:
        """Return the object that commits epochs; it connects in ``open``, not here."""
        ...


@runtime_checkable
class KeyedSink(Sink, Protocol):
    """A sink that may keep one row per key."""

    def keeps_gone(self, column: str) -> bool:
        """Whether the row of a key stays where a boolean column says that it is gone.

        Also False if the sink keeps all rows: that column then tells readers.
        """
        ...


@runtime_checkable
class Making(Protocol):
    """A committer that creates what is missing when a run opens it."""

    def to_make(self) -> tuple[str, ...]:
        """Return what does not exist yet, in words; change nothing.

        Called after the sink has answered.
        """
        ...


@runtime_checkable
class Probed(Protocol):
    """A committer that can tell, before a run, whether it would work."""

    def probe(self) -> None:
        """Check that the sink answers and fits; change nothing.

        Raises:
            DefinitionError: It does not fit.
            SinkError: It does not answer.
        """
        ...
