"""Handles of single values: what ``self.total`` is read from and written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from riverlock.state.codec import encode
from riverlock.state.keys import (
    value_slot,
)
from riverlock.state.visit import Handle, Visit

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
    )

    from riverlock.state.spec import StateSpec

__all__ = ["ReducingHandle", "ValueHandle"]

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

    called: ClassVar = "a fold"

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
