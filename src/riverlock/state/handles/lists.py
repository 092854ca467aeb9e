"""The handle of a list, whose elements are stored one by one."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import msgspec

from riverlock.core.values.known_types import known
from riverlock.state.codec import Codec, encode, optional
from riverlock.state.keys import (
    index_bytes,
    index_of,
    list_slot,
)
from riverlock.state.visit import Handle, Visit

if TYPE_CHECKING:
    from riverlock.state.spec import StateSpec

__all__ = ["ListHandle"]

V = TypeVar("V")


class ListHandle(Handle, Sequence[V], Generic[V]):
    """A list whose elements are entries: appending costs what is appended."""

    called: ClassVar = "a list"

    def __init__(self, spec: StateSpec, visit: Visit) -> None:
        """Begin unread."""
        super().__init__(spec, visit)
        self._slot = list_slot(spec.name)
        self.reset()

    def reset(self) -> None:
        """Forget the turn."""
        super().reset()
        self._new: list[Any] = []  # appended in this turn
        self._old: list[Any] | None = None  # stored elements still in the list
        self._coded: list[bytes] = []  # their bytes as read
        self._ids: list[bytes] = []  # their ids
        self._gone: list[bytes] = []  # ids to remove
        # Places of elements that were handed out; None: any of them may have been.
        self._out: set[int] | None = set()
        self._is_renewed = False  # all elements were assigned, so live anew

    def append(self, value: V) -> None:
        """Add an element at the end, without reading the list."""
        self._write()
        self._new.append(self._normal(value))

    def extend(self, values: Iterable[V]) -> None:
        """Add elements at the end."""
        for value in list(values):
            self.append(value)

    def __add__(self, values: Iterable[V]) -> list[V]:
        """Return a new list; the state is as it was."""
        return [*self, *values]

    def __iadd__(self, values: Iterable[V]) -> Self:
        """Add elements at the end: ``self.recent += [x]``."""
        self.extend(values)
        return self

    def clear(self) -> None:
        """Remove all elements."""
        self._write()
        self._load()
        self._gone += self._ids
        self._old, self._coded, self._ids, self._new = [], [], [], []
        self._out = set()

    def replace(self, values: Iterable[V]) -> None:
        """Become ``values``; what stays in place is not written again.

        Unless it expires: a value that is assigned lives anew.
        """
        if values is self:
            return
        self._write()
        fresh = [self._normal(v) for v in values]
        old = self._load()
        # By their bytes: equality is the user's, and 0.0 equals -0.0.
        now = [encode(v) for v in old] if self._is_mutable else self._coded
        coded = [encode(v) for v in fresh]
        keep_from = now.index(coded[0]) if coded and coded[0] in now else len(old)
        kept = len(old) - keep_from
        if now[keep_from:] != coded[:kept]:
            keep_from, kept = len(old), 0
        self._is_renewed = True
        self._out = None
        self._gone += self._ids[:keep_from]
        self._old = old[keep_from:]
        self._coded, self._ids = self._coded[keep_from:], self._ids[keep_from:]
        self._new = fresh[kept:]

    def _load(self) -> list[Any]:
        if self._old is None:
            self.touch()
            self._old = []
            for entry_id, payload in self.visit.reader.scan(
                self.visit.at[0] + self._slot
            ):
                coded = self._live(payload)
                if coded is None:
                    continue
                self._old.append(self._decode(coded))
                self._coded.append(coded)
                self._ids.append(entry_id)
        return self._old

    def __iter__(self) -> Iterator[V]:
        """Yield the elements in order."""
        self._hand_out(None)
        return iter([*self._load(), *self._new])

    def _hand_out(self, place: int | None) -> None:
        """Note that an element, or with None all of them, may be changed in place."""
        if self._is_mutable:
            self._lend()
            if place is None:
                self._out = None
            elif self._out is not None:
                self._out.add(place)

    def __len__(self) -> int:
        """Count the elements."""
        return len(self._load()) + len(self._new)

    @overload
    def __getitem__(self, at: int) -> V: ...
    @overload
    def __getitem__(self, at: slice) -> list[V]: ...
    def __getitem__(self, at: int | slice) -> V | list[V]:
        """Return an element or a slice."""
        every = [*self._load(), *self._new]
        found: V | list[V] = every[at]
        if isinstance(at, slice):
            self._hand_out(None)
        else:
            self._hand_out(at.__index__() % len(every))
        return found

    def __eq__(self, other: object) -> bool:
        """Compare as a list."""
        return list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show the elements."""
        return repr(list(self))

    def settle(self) -> None:
        """Bring elements that were handed out to their type."""
        out, self._out, self._is_lent = self._out, set(), False
        if out is None:
            self.check()
            return
        stored = len(self._old or ())
        for place in out:
            part, at = (
                (self._old, place) if place < stored else (self._new, place - stored)
            )
            assert part is not None
            part[at] = self._normal(part[at])

    def check(self) -> None:
        """Bring elements that were changed in place to their type."""
        if self._is_mutable:
            if self._old:
                self._old = self._all_normal(self._old)
            self._new = self._all_normal(self._new)

    def snapshot(self) -> Any:
        """Keep copies; elements are kept as bytes."""
        old = None if self._old is None else encode(self._old)
        return (
            old,
            encode(self._new),
            list(self._coded),
            list(self._ids),
            list(self._gone),
            self._is_renewed,
        )

    def rewind(self, saved: Any) -> None:
        """Come back to the moment of a ``snapshot``."""
        old, new, self._coded, self._ids, self._gone, self._is_renewed = saved
        many = codec_of_list(self.codec)
        self._old = None if old is None else many(old)
        self._new = many(new)

    def flush(self) -> None:
        """Write what was appended, changed in place and removed."""
        self.check()
        log = self.visit.log
        for entry_id in self._gone:
            self._delete(entry_id, "list")
        log.added -= len(self._gone)
        lives_anew = self._is_renewed and self.spec.ttl_us is not None
        if (self._is_mutable or lives_anew) and self._old:
            for value, coded, entry_id in zip(
                self._old, self._coded, self._ids, strict=True
            ):
                if lives_anew or encode(value) != coded:
                    self._element(entry_id, value)
        if self._new:
            index = self._first_free()
            prefix = self.visit.at[0] + self._slot
            for offset, value in enumerate(self._new):
                self._element(prefix + index_bytes(index + offset), value)
            log.added += len(self._new)
        self.reset()

    def _first_free(self) -> int:
        last = self.visit.reader.last(self.visit.at[0] + self._slot)
        # Expired elements may or may not still be stored here. Counting from the
        # time keeps clear of them, so that every copy chooses the same index.
        floor = 0 if self.spec.ttl_us is None else self.visit.now_us << 10
        return floor if last is None else max(floor, index_of(last) + 1)

    def _element(self, entry_id: bytes, value: Any) -> None:
        data = {"index": index_of(entry_id), "value": self._arrow(value)}
        self._put(entry_id, encode(value), data, "list")


def codec_of_list(codec: Codec) -> Callable[[bytes], list[Any]]:
    """Return a decoder of many values of a codec's type."""
    many = GenericAlias(list, (optional(codec.python),))
    decode: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(known(many)).decode
    return decode
