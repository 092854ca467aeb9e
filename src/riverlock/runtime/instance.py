"""The user's process, made live: state of the current key as plain attributes.

A subclass of the user's class is made per task. Values packed into the key's row are put
into the instance's ``__dict__`` before the key's turn and taken from there after it;
whether they changed is told by comparing bytes, which also notices changes in place.
Everything else is reached through descriptors that lead to handles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from riverlock.core.errors import StateError, StateTypeError
from riverlock.runtime.program import OperatorProgram
from riverlock.state.changelog import ChangeLog
from riverlock.state.codec import encode
from riverlock.state.handles import ReducingHandle, ValueHandle, Visit, bind
from riverlock.state.keys import BROADCAST, group_id
from riverlock.state.layout import Row, StateLayout
from riverlock.state.spec import Reducing, StateSpec, Value
from riverlock.state.store import StateReader

__all__ = ["Instance"]

At = tuple[bytes, int | None, tuple[Any, ...] | None]


class _HandleAttribute:
    """Leads ``self.recent`` to its handle; assigning replaces the content."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __get__(self, instance: object, owner: type) -> Any:
        return self._handle

    def __set__(self, instance: object, values: Any) -> None:
        self._handle.replace(values)

    def __delete__(self, instance: object) -> None:
        self._handle.clear()


class _ValueAttribute:
    """Leads ``self.token`` to the handle of an expiring value."""

    def __init__(self, handle: ValueHandle, spec: Value) -> None:
        self._handle, self._spec = handle, spec

    def __get__(self, instance: object, owner: type) -> Any:
        value = self._handle.get()
        return self._spec.default if value is None else value

    def __set__(self, instance: object, value: Any) -> None:
        self._handle.set(value)

    def __delete__(self, instance: object) -> None:
        self._handle.set(None)


class Instance:
    """The live process of one task and epoch."""

    def __init__(
        self,
        program: OperatorProgram,
        layout: StateLayout,
        reader: StateReader,
        log: ChangeLog,
        now_us: int,
    ) -> None:
        """Make the subclass, its instance and the visits of the three scopes."""
        self._layout, self._reader, self._log = layout, reader, log
        self._operator = program.uid
        self._visits_all = program.visits_all
        self._visits = {
            scope: Visit(program.uid, reader, log, now_us) for scope in layout.rows
        }
        self.visit = self._visits["key"]
        kind = type(program.process)
        self._fields: dict[str, Any] = {}
        attributes = {s.name: self._attribute(s) for s in layout.specs.values()}
        live = {n: a for n, a in attributes.items() if a is not None}
        made = type(kind.__name__, (kind,), {"__module__": kind.__module__, **live})
        self.user: Any = made.__new__(made)
        self.user.__dict__.update(program.process.__dict__)
        self._fields = self.user.__dict__
        self._row = layout.rows["key"]
        self._has_group_state = _is_used(layout, "group")
        self._keeps_group = self._has_group_state and program.has_dead_letters
        self._group: int | None = None
        self._group_payload: bytes | None = None
        self._group_start: tuple[bytes | None, Any] = (None, [])
        self._broadcast_payload: bytes | None = None
        self._broadcast_seen: bytes | None = None
        if _is_used(layout, "broadcast"):
            self._enter_broadcast()

    def _attribute(self, spec: StateSpec) -> object | None:
        """Return the descriptor of a variable; None for a plain attribute."""
        if spec.is_packed:
            if not isinstance(spec, Reducing):
                return None
            return _HandleAttribute(self._packed_reducing(spec))
        handle = bind(spec, self._visits[spec.scope])
        if isinstance(spec, Reducing):
            assert isinstance(handle, ValueHandle)
            return _HandleAttribute(ReducingHandle(spec.fn, handle.get, handle.set))
        if isinstance(spec, Value):
            assert isinstance(handle, ValueHandle)
            return _ValueAttribute(handle, spec)
        return _HandleAttribute(handle)

    def _packed_reducing(self, spec: Reducing) -> ReducingHandle:
        name = spec.name

        def get() -> Any:
            return self._fields.get(name)

        def put(value: Any) -> None:
            self._fields[name] = value

        return ReducingHandle(spec.fn, get, put)

    def load(self, at: At, payload: bytes | None) -> None:
        """Begin a key's turn with its stored row."""
        self.visit.at = at
        if self._has_group_state and at[1] != self._group:
            self._leave_group()
            self._enter_group(at[1])
        if self._keeps_group:
            # A way back for the group's state too, should this key fail.
            self._group_start = (
                self._encoded(self._layout.rows["group"]),
                self._visits["group"].save(),
            )
        self._place(self._row, payload)
        if self._visits_all:
            self._fields["_values"] = []

    def reload(self, payload: bytes | None) -> None:
        """Begin the key's turn anew, as if nothing had run."""
        self.visit.forget()
        self._place(self._row, payload)
        if self._keeps_group:
            row, handles = self._group_start
            self._place(self._layout.rows["group"], row)
            self._visits["group"].rewind(handles)
        if self._visits_all:
            self._fields["_values"] = []

    def store(self, payload: bytes | None) -> None:
        """End the key's turn: record what changed."""
        if self._row.names:
            self._record("key", self.visit.at, payload)
        if self.visit.touched:
            self.visit.flush()

    def stored_key(self, payload: bytes) -> tuple[Any, ...]:
        """Return the key that an ``update_state_by_key`` row carries."""
        value = self._row.decode(payload)[self._row.names.index("key")]
        return tuple(getattr(value, f.name) for f in self._layout.keys.fields)

    def with_broadcast_writable(self, action: Callable[[], Any]) -> None:
        """Run user code that may write broadcast state."""
        visit = self._visits["broadcast"]
        visit.is_writable = True
        action()
        visit.is_writable = False
        self._broadcast_seen = self._encoded(self._layout.rows["broadcast"])

    def close(self) -> None:
        """End the task's epoch: group and broadcast state are recorded.

        Raises:
            StateError: Broadcast state was written outside ``on_broadcast``.
        """
        if self._has_group_state:
            self._leave_group()
        visit, row = self._visits["broadcast"], self._layout.rows["broadcast"]
        if row.names and self._encoded(row) != self._broadcast_seen:
            raise StateError(
                f"broadcast state of operator {self._operator!r} was written outside"
                " on_broadcast",
                hint="write it in on_broadcast, which every task sees alike",
            )
        if row.names:
            self._record("broadcast", visit.at, self._broadcast_payload)
        visit.flush()

    def save(self) -> Any:
        """Return a way back to this moment."""
        rows = {s: self._encoded(r) for s, r in self._layout.rows.items()}
        return rows, {s: v.save() for s, v in self._visits.items()}

    def rewind(self, saved: Any) -> None:
        """Go back to the moment of a ``save``."""
        rows, kept = saved
        for scope, row in self._layout.rows.items():
            self._place(row, rows[scope])
            self._visits[scope].rewind(kept[scope])

    def check(self) -> None:
        """Bring the packed values to their types now, not at the end of the epoch."""
        for row in self._layout.rows.values():
            self._normalise(row)

    def _place(self, row: Row, payload: bytes | None) -> None:
        fields = self._fields
        if payload is None:
            for name in row.names:
                fields.pop(name, None)
            return
        for name, value in zip(row.names, row.decode(payload), strict=True):
            if value is None:
                fields.pop(name, None)
            else:
                fields[name] = value

    def _encoded(self, row: Row) -> bytes | None:
        if not row.names:
            return None
        values = tuple(map(self._fields.get, row.names))
        try:
            return encode(values)
        except (TypeError, ValueError, OverflowError):
            return encode(self._normalise(row))

    def _normalise(self, row: Row) -> tuple[Any, ...]:
        for name, codec in zip(row.names, row.codecs, strict=True):
            value = self._fields.get(name)
            if value is None:
                continue
            try:
                self._fields[name] = codec.normalise(value)
            except (TypeError, ValueError, ArithmeticError) as error:
                key = self.visit.at[2]
                raise StateTypeError(
                    operator=self._operator,
                    variable=name,
                    key=key[0] if key is not None and len(key) == 1 else key,
                    expected=f"{codec.type.ddl} ({error})",
                    found=value,
                ) from error
        return tuple(map(self._fields.get, row.names))

    def _record(self, scope: str, at: At, payload: bytes | None) -> None:
        row = self._layout.rows[scope]
        fresh = self._encoded(row)
        if fresh == payload:
            return
        values = tuple(map(self._fields.get, row.names))
        if values.count(None) == len(values):
            if payload is not None:
                self._log.row(scope, at, None, None)
                self._log.added -= 1
            return
        self._log.row(scope, at, values, fresh)
        self._log.added += payload is None

    def _enter_group(self, group: int | None) -> None:
        assert group is not None
        self._group = group
        visit = self._visits["group"]
        visit.at = (group_id(group), group, None)
        self._group_payload = self._reader.get(visit.at[0])
        self._place(self._layout.rows["group"], self._group_payload)

    def _leave_group(self) -> None:
        if self._group is not None:
            visit = self._visits["group"]
            if self._layout.rows["group"].names:
                self._record("group", visit.at, self._group_payload)
            visit.flush()
            self._group = None

    def _enter_broadcast(self) -> None:
        visit = self._visits["broadcast"]
        visit.at = (BROADCAST, None, None)
        visit.is_writable = False
        self._broadcast_payload = self._reader.get(BROADCAST)
        self._broadcast_seen = self._broadcast_payload
        self._place(self._layout.rows["broadcast"], self._broadcast_payload)


def _is_used(layout: StateLayout, scope: str) -> bool:
    return any(s.scope == scope for s in layout.specs.values())
