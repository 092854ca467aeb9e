"""Run-time handles of declared state: what ``self.recent`` and ``self.seen`` are.

A handle serves one variable for all keys of a task, one key at a time. It reads from
the store what is asked of it, remembers what is written, and hands the difference to
the change log when the key is done. Handles that were not touched cost nothing.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import msgspec

from riverlock.core.errors import StateError
from riverlock.state.codec import Codec, codec_of, encode, optional
from riverlock.state.keys import (
    index_bytes,
    index_of,
    list_slot,
    map_key_bytes,
    map_slot,
    value_slot,
)
from riverlock.state.spec import Map, Reducing
from riverlock.state.visit import Handle, Visit

if TYPE_CHECKING:
    from riverlock.state.spec import StateSpec

__all__ = ["ListHandle", "MapHandle", "ReducingHandle", "ValueHandle", "Visit", "bind"]

V = TypeVar("V")
_UNREAD = object()


class ValueHandle(Handle):
    """An expiring value: an entry of its own, written again when assigned."""

    def __init__(self, spec: StateSpec, visit: Visit) -> None:
        """Begin unread."""
        super().__init__(spec, visit)
        self._slot = value_slot(spec.name)
        self.reset()

    def reset(self) -> None:
        """Forget the turn."""
        super().reset()
        self._value: Any = _UNREAD
        self._coded: bytes | None = None
        self._assigned = False
        self._default: bytes | None = None

    def get(self) -> Any:
        """Return the value, or None."""
        if self._value is _UNREAD:
            self.touch()
            payload = self.visit.reader.get(self.visit.at[0] + self._slot)
            self._coded = self._live(payload)
            self._value = None if self._coded is None else self._decode(self._coded)
        if self._is_mutable:
            self._lend()
        return self._value

    def set(self, value: Any) -> None:
        """Assign; None forgets the value."""
        self.get()
        self._write()
        self._value = self._normal(value)
        self._assigned = True

    def lend(self, default: Any) -> Any:
        """Place a default on an unset value: it is stored only if it is changed."""
        self.touch()
        self._lend()
        self._value, self._default = default, encode(default)
        self._assigned = False
        return default

    def check(self) -> None:
        """Bring the value to its type."""
        if self._is_mutable and self._value is not _UNREAD:
            self._value = self._normal(self._value)

    def snapshot(self) -> Any:
        """Keep the coded value: the object itself may be changed in place."""
        value = self._value
        is_coded = value is not _UNREAD and value is not None
        kept = encode(value) if is_coded else value
        return is_coded, kept, self._coded, self._assigned, self._default

    def rewind(self, saved: Any) -> None:
        """Come back to the moment of a ``snapshot``."""
        is_coded, kept, self._coded, self._assigned, self._default = saved
        self._value = self._decode(kept) if is_coded else kept

    def flush(self) -> None:
        """Write the value if it was assigned or changed in place."""
        self.check()
        entry_id, value = self.visit.at[0] + self._slot, self._value
        if value is not _UNREAD:
            coded = None if value is None else encode(value)
            if not self._assigned and coded == self._default:
                coded = None
            if coded is None:
                if self._coded is not None:
                    self._delete(entry_id, "value")
                    self.visit.log.added -= 1
            elif self._assigned or coded != self._coded:
                self._put(entry_id, coded, self._arrow(value), "value")
                self.visit.log.added += self._coded is None
        self.reset()


class ReducingHandle:
    """``add`` folds a value in; ``value`` is the fold so far, or None."""

    __slots__ = ("_fn", "_get", "_set")

    def __init__(
        self,
        fn: Callable[[Any, Any], Any],
        get: Callable[[], Any],
        set: Callable[[Any], None],
    ) -> None:
        """Fold over whatever ``get`` and ``set`` reach."""
        self._fn, self._get, self._set = fn, get, set

    def add(self, value: Any) -> None:
        """Fold ``value`` into the state."""
        old = self._get()
        self._set(value if old is None else self._fn(old, value))

    @property
    def value(self) -> Any:
        """The fold so far; None before the first ``add``."""
        return self._get()

    def replace(self, value: Any) -> None:
        """Begin anew with a value; None forgets it."""
        self._set(value)

    def clear(self) -> None:
        """Begin anew."""
        self._set(None)


class ListHandle(Handle, Sequence[V], Generic[V]):
    """A list whose elements are entries: appending costs what is appended."""

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
        """Give the elements in order."""
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
    decode: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(many).decode
    return decode


_ABSENT = object()
_GONE = (None, _ABSENT)


class MapHandle(Handle, MutableMapping[Any, V], Generic[V]):
    """A dictionary whose entries are stored one by one, in a stable order."""

    def __init__(self, spec: StateSpec, visit: Visit) -> None:
        """Begin unread."""
        super().__init__(spec, visit)
        assert isinstance(spec, Map)
        self._slot = map_slot(spec.name)
        self._key = codec_of(spec.key_type)
        pair = GenericAlias(tuple, (self._key.python, optional(self.codec.python)))
        self._decode_pair = msgspec.msgpack.Decoder(pair).decode
        self.reset()

    def reset(self) -> None:
        """Forget the turn."""
        super().reset()
        # slot bytes of the map key -> (key, value or _ABSENT); what was read or written
        self._seen: dict[bytes, tuple[Any, Any]] = {}
        self._coded: dict[bytes, bytes] = {}  # live entries as stored
        self._assigned: set[bytes] = set()
        self._out: set[bytes] = set()  # entries that were handed out
        self._is_whole = False

    def _as_key(self, key: Any) -> Any:
        if key is None:
            raise StateError(f"map state {self.spec.name!r} has no None keys")
        key = self._normal(key, self._key)
        # -0.0 and 0.0 are one key, as in a dictionary.
        return 0.0 if type(key) is float and key == 0 else key

    def _remember(self, name: bytes, payload: bytes | None, key: Any) -> Any:
        coded = self._live(payload)
        value = _ABSENT
        if coded is not None:
            self._coded[name] = coded
            key, value = self._decode_pair(coded)
        self._seen[name] = (key, value)
        return value

    def _find(self, key: Any) -> tuple[bytes, Any]:
        if key is None:
            return b"", _ABSENT
        key = self._as_key(key)
        name = map_key_bytes(key)
        if name in self._seen:
            return name, self._seen[name][1]
        self.touch()
        if self._is_whole:
            return name, _ABSENT
        payload = self.visit.reader.get(self.visit.at[0] + self._slot + name)
        return name, self._remember(name, payload, key)

    def __getitem__(self, key: Any) -> V:
        """Return one entry's value, reading only that entry."""
        name, value = self._find(key)
        if value is _ABSENT:
            raise KeyError(key)
        if self._is_mutable:
            self._lend()
            self._out.add(name)
        found: V = value
        return found

    def __setitem__(self, key: Any, value: V) -> None:
        """Write one entry."""
        key = self._as_key(key)
        name, _ = self._find(key)
        self._write()
        self._seen[name] = (key, self._normal(value))
        self._assigned.add(name)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return an entry's value; if there is none, that of the default."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, values: Mapping[Any, V]) -> Self:
        """Write several entries: ``self.seen |= {...}``."""
        self.update(values)
        return self

    def __delitem__(self, key: Any) -> None:
        """Remove one entry."""
        name, value = self._find(key)
        if value is _ABSENT:
            raise KeyError(key)
        self._write()
        self._seen[name] = (key, _ABSENT)
        self._assigned.add(name)

    def __contains__(self, key: object) -> bool:
        """Tell whether there is such an entry, reading only that entry."""
        return self._find(key)[1] is not _ABSENT

    def _load(self) -> None:
        if self._is_whole:
            return
        self.touch()
        prefix = self.visit.at[0] + self._slot
        for entry_id, payload in self.visit.reader.scan(prefix):
            name = entry_id[len(prefix) :]
            if name not in self._seen:
                self._remember(name, payload, None)
        self._is_whole = True

    def __iter__(self) -> Iterator[Any]:
        """Give the keys in the order of their bytes."""
        self._load()
        return iter(
            [
                k
                for _, (k, v) in sorted(self._seen.items(), key=_first)
                if v is not _ABSENT
            ]
        )

    def __len__(self) -> int:
        """Count the entries; reads them all."""
        self._load()
        return sum(v is not _ABSENT for _, v in self._seen.values())

    def clear(self) -> None:
        """Remove all entries."""
        self.replace({})

    def replace(self, values: Mapping[Any, V]) -> None:
        """Become ``values``."""
        if values is self:
            return
        values = dict(values)
        self._load()
        self._write()
        for name, (key, value) in self._seen.items():
            if value is not _ABSENT:
                self._seen[name] = (key, _ABSENT)
                self._assigned.add(name)
        for key, value in values.items():
            self[key] = value

    def __repr__(self) -> str:
        """Show the entries."""
        return repr(dict(self))

    def settle(self) -> None:
        """Bring values that were handed out to their type."""
        out, self._out, self._is_lent = self._out, set(), False
        self._settle(out)

    def check(self) -> None:
        """Bring values that were changed in place to their type."""
        if self._is_mutable:
            self._settle(self._seen)

    def _settle(self, names: Iterable[bytes]) -> None:
        there = [n for n in names if self._seen.get(n, _GONE)[1] is not _ABSENT]
        values = self._all_normal([self._seen[n][1] for n in there])
        for name, value in zip(there, values, strict=True):
            self._seen[name] = (self._seen[name][0], value)

    def snapshot(self) -> Any:
        """Keep copies; values are kept as bytes."""
        seen = {
            n: (k, v if v is _ABSENT else encode(v)) for n, (k, v) in self._seen.items()
        }
        return seen, dict(self._coded), set(self._assigned), self._is_whole

    def rewind(self, saved: Any) -> None:
        """Come back to the moment of a ``snapshot``."""
        seen, self._coded, self._assigned, self._is_whole = saved
        self._seen = {
            n: (k, v if v is _ABSENT else self._decode(v)) for n, (k, v) in seen.items()
        }

    def flush(self) -> None:
        """Write the entries that were assigned or changed in place."""
        self.check()
        log, prefix = self.visit.log, self.visit.at[0] + self._slot
        for name, (key, value) in sorted(self._seen.items(), key=_first):
            stored = self._coded.get(name)
            if value is _ABSENT:
                if name in self._assigned and stored is not None:
                    self._delete(prefix + name, "map")
                    log.added -= 1
                continue
            if name not in self._assigned and not self._is_mutable:
                continue
            coded = encode((key, value))
            if name in self._assigned or coded != stored:
                data = {"key": key, "value": self._arrow(value)}
                self._put(prefix + name, coded, data, "map")
                log.added += stored is None
        self.reset()


def _first(item: tuple[bytes, Any]) -> bytes:
    return item[0]


def bind(spec: StateSpec, visit: Visit) -> Handle:
    """Return the handle that serves a variable stored in entries of its own."""
    match spec.kind:
        case "list":
            return ListHandle(spec, visit)
        case "map":
            return MapHandle(spec, visit)
        case _:
            assert spec.kind == "value" or isinstance(spec, Reducing)
            return ValueHandle(spec, visit)
