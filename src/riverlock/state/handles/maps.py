"""The handle of a map, whose entries are stored one by one."""

from __future__ import annotations

from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import msgspec

from riverlock.core.errors import StateError
from riverlock.core.values.known_types import known
from riverlock.state.codec import codec_of, encode, optional
from riverlock.state.keys import (
    map_key_bytes,
    map_slot,
)
from riverlock.state.spec import Map
from riverlock.state.visit import Handle, Visit

if TYPE_CHECKING:
    from riverlock.state.spec import StateSpec

__all__ = ["MapHandle"]

V = TypeVar("V")
_ABSENT = object()
_GONE = (None, _ABSENT)


class MapHandle(Handle, MutableMapping[Any, V], Generic[V]):
    """A dictionary whose entries are stored one by one, in a stable order."""

    called: ClassVar = "a map"

    def __init__(self, spec: StateSpec, visit: Visit) -> None:
        """Begin unread."""
        super().__init__(spec, visit)
        assert isinstance(spec, Map)
        self._slot = map_slot(spec.name)
        self._key = codec_of(spec.key_type)
        pair = GenericAlias(tuple, (self._key.python, optional(self.codec.python)))
        self._decode_pair = msgspec.msgpack.Decoder(known(pair)).decode
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

    def __or__(self, values: Mapping[Any, V]) -> dict[Any, V]:
        """Return a new dictionary; the state is as it was."""
        return {**self, **values}

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
        """Yield the keys in the order of their bytes."""
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
