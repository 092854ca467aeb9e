"""What driver and tasks tell each other to find each other, unseen by the engine."""

from __future__ import annotations

from enum import IntEnum, unique
from typing import TYPE_CHECKING, TypeVar

import msgspec

from riverlock.core.values.known_types import known
from riverlock.exchange.limits import Limits
from riverlock.exchange.seam import Message, Shape
from riverlock.exchange.sockets.addresses import Address
from riverlock.exchange.wire.codec import packed_message
from riverlock.exchange.wire.header import BadFrameError

if TYPE_CHECKING:
    from riverlock.exchange.wire.columns import Bytes

__all__ = ["Here", "Invitation", "Word", "content_of", "word"]

_T = TypeVar("_T")


@unique
class Word(IntEnum):
    """The kind of a message between driver and task that no engine sees."""

    HERE = 1  # a task: where it runs and listens
    PEERS = 2  # the driver: where all tasks listen
    CONNECTED = 3  # a task: it has a connection to each other
    ENDED = 4  # the driver: the generation is over
    GOODBYE = 5  # a task: it ends in order


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task runs; where others reach it, if there are any."""

    host: str
    process: int
    address: Address | None


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """All that a task must know to join."""

    address: Address
    generation: bytes
    secret: bytes
    tasks: int
    edges: int
    first_epoch: int
    limits: Limits

    @property
    def shape(self) -> Shape:
        """What all tasks agree on."""
        return Shape(
            tasks=self.tasks,
            edges=self.edges,
            first_epoch=self.first_epoch,
            limits=self.limits,
        )

    def __repr__(self) -> str:
        return f"Invitation({self.address}, tasks={self.tasks})"


def word(kind: Word, content: object = None) -> list[Bytes]:
    """Return a message of our own as a frame."""
    payload = msgspec.msgpack.encode(content)
    return packed_message(Message(kind, payload), internal=True)


def content_of(message: Message, kind: type[_T]) -> _T:
    """Return what a message of our own says.

    Raises:
        BadFrameError: It says something else.
    """
    try:
        return msgspec.msgpack.decode(message.payload, type=known(kind))
    except msgspec.MsgspecError as error:
        what = f"a message of kind {message.kind} cannot be read: {error}"
        raise BadFrameError(what) from error
