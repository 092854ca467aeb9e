"""Whose turn it is, and what all handles of declared state have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from riverlock.core.errors import StateError, StateTypeError
from riverlock.state.changelog import ChangeLog, Entry, Key
from riverlock.state.codec import Codec, codec_of
from riverlock.state.keys import time_bytes, time_of

if TYPE_CHECKING:
    from riverlock.state.spec import StateSpec
    from riverlock.state.store import StateReader

__all__ = ["Handle", "Lender", "Visit"]

# Of these every value can be stored; numbers and text have some that cannot.
_EXACT = (bool, float, bytes)


class Lender(Protocol):
    """Hands out objects that user code may change in place."""

    def settle(self) -> None:
        """Take them back: each becomes a normal copy, as another epoch would read."""


class Visit:
    """Whose turn it is: the key (or group) that handles read and write."""

    __slots__ = (
        "at",
        "is_writable",
        "lent",
        "log",
        "now_us",
        "operator",
        "reader",
        "touched",
    )

    def __init__(
        self,
        operator: str,
        reader: StateReader,
        log: ChangeLog,
        now_us: int,
        lent: list[Lender] | None = None,
    ) -> None:
        """Begin with nobody's turn.

        Args:
            operator: Whose state it is.
            reader: The state at the start of the epoch.
            log: Where changes go.
            now_us: Processing time.
            lent: Where handles note that they have handed out what can be changed in
                place, to be settled after the record; None: nobody changes it.
        """
        self.lent = lent
        self.operator = operator
        self.reader = reader
        self.log = log
        self.now_us = now_us
        self.at: tuple[bytes, int | None, Key] = (b"", None, None)
        self.touched: list[Handle] = []
        self.is_writable = True

    def flush(self) -> None:
        """Hand all changes of this turn to the log."""
        for handle in self.touched:
            handle.flush()
        self.touched.clear()

    def check(self) -> None:
        """Bring everything of this turn to its type.

        Raises:
            StateTypeError: A value was changed in place to what cannot be stored.
        """
        for handle in self.touched:
            handle.check()

    def save(self) -> list[tuple[Handle, Any]]:
        """Return a way back to this moment."""
        return [(handle, handle.snapshot()) for handle in self.touched]

    def rewind(self, saved: list[tuple[Handle, Any]]) -> None:
        """Go back to the moment of a ``save``."""
        self.forget()
        for handle, snapshot in saved:
            handle.rewind(snapshot)
            handle.touch()

    def forget(self) -> None:
        """Drop all changes of this turn."""
        for handle in self.touched:
            handle.reset()
        self.touched.clear()


class Handle:
    """Base: knows its variable, its codec and how entries expire."""

    def __init__(self, spec: StateSpec, visit: Visit) -> None:
        """Bind a variable to the turns of a task."""
        self.spec = spec
        self.visit = visit
        self.codec: Codec = codec_of(spec.type)
        self._decode = self.codec.decoder()
        self._is_mutable = self.codec.is_mutable
        self._is_touched = self._is_lent = False

    def touch(self) -> None:
        """Take part in the turn: be flushed at its end."""
        if not self._is_touched:
            if not self.visit.at[0]:
                raise StateError(
                    f"state {self.spec.name!r} belongs to a key: it cannot be used"
                    " in open or on_broadcast",
                    hint='declare it with scope="broadcast"',
                )
            self._is_touched = True
            self.visit.touched.append(self)

    def _lend(self) -> None:
        """Note that user code has something that it may change in place."""
        visit = self.visit
        if not self._is_lent and visit.lent is not None and visit.is_writable:
            self._is_lent = True
            visit.lent.append(self)

    def _write(self) -> None:
        if not self.visit.is_writable:
            raise StateError(
                f"broadcast state {self.spec.name!r} is read-only here",
                hint="write it in on_broadcast, which runs in every task",
            )
        self.touch()

    def reset(self) -> None:
        """Forget the turn."""
        self._is_touched = self._is_lent = False

    def settle(self) -> None:
        """Bring what was lent to its type; user code keeps no reference to it."""
        self._is_lent = False
        self.check()

    def flush(self) -> None:
        """Hand the changes of the turn to the log and forget it."""
        raise AssertionError

    def check(self) -> None:
        """Bring what was changed in place to its type now, not when it is flushed."""
        raise AssertionError

    def snapshot(self) -> Any:
        """Return what ``rewind`` needs to come back to this moment."""
        raise AssertionError

    def rewind(self, saved: Any) -> None:
        """Come back to the moment of a ``snapshot``."""
        raise AssertionError

    def _normal(self, value: Any, codec: Codec | None = None) -> Any:
        codec = codec or self.codec
        if value is None or (type(value) is codec.plain and codec.plain in _EXACT):
            return value
        try:
            return codec.normalise(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            key = self.visit.at[2]
            raise StateTypeError(
                operator=self.visit.operator,
                variable=self.spec.name,
                key=key[0] if key is not None and len(key) == 1 else key,
                expected=f"{codec.type.ddl} ({error})",
                found=value,
            ) from error

    def _all_normal(self, values: list[Any]) -> list[Any]:
        """Return normal copies of many values."""
        try:
            return self.codec.copies(values)
        except (TypeError, ValueError, ArithmeticError):
            return [self._normal(v) for v in values]  # tells which it is

    def _arrow(self, value: Any) -> Any:
        out = self.codec.to_arrow
        return value if value is None or out is None else out(value)

    @property
    def _expires_us(self) -> int | None:
        ttl = self.spec.ttl_us
        return None if ttl is None else self.visit.now_us + ttl

    def _live(self, payload: bytes | None) -> bytes | None:
        """Return the coded value if the entry exists and has not expired."""
        if payload is None or self.spec.ttl_us is None:
            return payload
        return payload[8:] if time_of(payload[:8]) > self.visit.now_us else None

    def _put(self, entry_id: bytes, coded: bytes, data: Any, kind: str) -> None:
        at, expires = self.visit.at, self._expires_us
        payload = coded if expires is None else time_bytes(expires) + coded
        name = self.spec.name
        self.visit.log.entry(
            Entry(entry_id, kind, at[1], at[2], name, payload, data, expires)
        )

    def _delete(self, entry_id: bytes, kind: str) -> None:
        at = self.visit.at
        self.visit.log.entry(Entry(entry_id, kind, at[1], at[2], self.spec.name, None))
