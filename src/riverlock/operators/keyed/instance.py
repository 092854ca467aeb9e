"""The user's process, made live: state of the current key as plain attributes.

A subclass of the user's class is made per task. Values packed into the key's row are
put into the instance's ``__dict__`` before the key's turn and taken from there after
it; whether they changed is told by comparing bytes, which notices changes in place too.
Everything else is reached through descriptors that lead to handles.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import StateError, StateTypeError
from riverlock.operators.base import BuiltIn
from riverlock.operators.keyed.constants import Computed, Constants
from riverlock.operators.keyed.live_parameters import Parameters
from riverlock.operators.keyed.mentions import place_of
from riverlock.operators.keyed.state_attributes import (
    DefaultAttribute,
    HandleAttribute,
    InPlace,
    ObjectAttribute,
    ValueAttribute,
)
from riverlock.program.params import params_of
from riverlock.state.changelog import ChangeLog
from riverlock.state.codec import Codec, codec_of, encode
from riverlock.state.handles import ReducingHandle, ValueHandle, Visit, bind
from riverlock.state.keys import BROADCAST, group_id
from riverlock.state.spec import Reducing, StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.operators.shipped import EpochInfo, OperatorProgram
    from riverlock.operators.task_input import KeyedInput
    from riverlock.program.process import KeyedLogic
    from riverlock.state.layout import Row, StateLayout
    from riverlock.state.store import StateReader
    from riverlock.state.visit import Lender

__all__ = ["Instance"]

At = tuple[bytes, int | None, tuple[Any, ...] | None]


class Instance:
    """The live process of one task and epoch."""

    def __init__(
        self,
        program: OperatorProgram,
        layout: StateLayout,
        reader: StateReader,
        log: ChangeLog,
        info: EpochInfo,
    ) -> None:
        """Make the subclass, its instance and the visits of the three scopes."""
        self._layout, self._reader, self._log = layout, reader, log
        self._operator = program.uid
        self._process = program.process
        # What was handed out since the last step and may have been changed in place.
        self.lent: list[Lender] = []
        self._lends = _lends_objects(program.process)
        self.has_objects = self._lends and any(
            codec_of(s.type).is_mutable for s in layout.specs.values()
        )
        lent = self.lent if self._lends else None
        self._visits = {
            scope: Visit(program.uid, reader, log, info.now_us, lent)
            for scope in layout.rows
        }
        self.visit = self._visits["key"]
        self.fields: dict[str, Any] = {}
        # Values of this turn that are known to be in their normal form.
        self._settled: dict[str, Any] = {}
        packed = [
            (s.name, codec_of(s.type))
            for s in layout.specs.values()
            if s.is_packed and s.scope != "broadcast"
        ]
        self._names = [name for name, _ in packed]
        self._packed = [
            each for each in packed if not (self._lends and each[1].is_mutable)
        ]
        # Values whose type is one of these need no settling.
        self.kinds = [(name, codec.plain) for name, codec in self._packed]
        attributes = {s.name: self._attribute(s) for s in layout.specs.values()}
        self._parameters = Parameters(params_of(type(program.process)), info.parameters)
        self.user: Any = self._live(program.process, attributes)
        self.fields = self.user.__dict__
        # What the process keeps besides, once it is open; our own are trusted.
        self._constants: Constants | None = None
        self._row = layout.rows["key"]
        self.has_group_state = _is_used(layout, "group")
        # Whether nothing but the key's own state has to be looked after per key.
        self.is_plain = not self.has_group_state and not program.visits_all
        self._keeps_group = self.has_group_state and program.has_dead_letters
        self._group: int | None = None
        self._group_payload: bytes | None = None
        self._group_start: tuple[bytes | None, Any] = (None, [])
        self._broadcast_payload: bytes | None = None
        self._broadcast_seen: bytes | None = None
        self._broadcast_pending: dict[bytes, bytes | None] | None = None
        self._has_broadcast_objects = any(
            codec_of(s.type).is_mutable for s in layout.scoped("broadcast")
        )
        if _is_used(layout, "broadcast"):
            self._enter_broadcast()
            self._broadcast_pending = self._pending_broadcast()

    def _live(self, process: Any, attributes: dict[str, object | None]) -> Any:
        """Return an instance of a class of the user's, with state as attributes."""
        kind = type(process)
        live = {n: a for n, a in attributes.items() if a is not None}
        live |= {"__module__": kind.__module__, "__delattr__": self._forgetting(kind)}
        live |= {
            name: Computed(each.func)
            for cls in reversed(kind.__mro__)
            for name, each in vars(cls).items()
            if isinstance(each, cached_property)
        }
        made: Any = type(kind.__name__, (kind,), live | self._parameters.live)
        user = made.__new__(made)
        user.__dict__.update(process.__dict__)
        return user

    def _attribute(self, spec: StateSpec) -> object | None:
        """Return the descriptor of a variable; None for a plain attribute."""
        if spec.is_packed:
            value = self._object(spec)
            if isinstance(spec, Reducing):
                return HandleAttribute(self._packed_reducing(spec, value))
            assert isinstance(spec, Value)
            if value is not None:
                return ObjectAttribute(spec, value)
            return DefaultAttribute(self._lend, spec) if spec.is_copied else None
        handle = bind(spec, self._visits[spec.scope])
        if isinstance(spec, Reducing):
            assert isinstance(handle, ValueHandle)
            return HandleAttribute(ReducingHandle(spec.fn, handle.get, handle.set))
        if isinstance(spec, Value):
            assert isinstance(handle, ValueHandle)
            return ValueAttribute(handle, spec)
        return HandleAttribute(handle)

    def _forgetting(self, kind: type) -> Callable[[Any, str], None]:
        """Return a ``__delattr__`` for which a value that is not set is no error."""
        names = {s.name for s in self._layout.specs.values() if s.is_packed}
        inherited: Any = kind.__delattr__

        def delete(user: Any, name: str) -> None:
            if name in names:
                self.fields.pop(name, None)
            else:
                inherited(user, name)

        return delete

    def _lend(self, spec: Value) -> Any:
        fresh = spec.fresh()
        self.fields[spec.name] = fresh
        self._settled[spec.name] = fresh
        return fresh

    def _object(self, spec: StateSpec) -> InPlace | None:
        """Return what settles a value that steps may change in place, if they may.

        Broadcast state is settled by the only step that may change it.
        """
        codec = codec_of(spec.type)
        if not (self._lends and codec.is_mutable and spec.scope != "broadcast"):
            return None

        def settle(name: str) -> None:
            value = self.fields.get(name)
            if value is None:
                self.fields.pop(name, None)
            else:
                self.fields[name] = self._checked(name, codec, value)

        return InPlace(spec.name, self.lent, settle)

    def _packed_reducing(self, spec: Reducing, value: InPlace | None) -> ReducingHandle:
        name = spec.name

        def get() -> Any:
            if value is not None:
                value.lend()
            return self.fields.get(name)

        def put(found: Any) -> None:
            if value is not None:
                value.lend()
            self.fields[name] = found

        return ReducingHandle(spec.fn, get, put)

    def load(self, at: At, payload: bytes | None) -> None:
        """Begin a key's turn with its stored row."""
        self.visit.at = at
        if self.has_group_state and at[1] != self._group:
            self._leave_group()
            self._enter_group(at[1])
        if self._keeps_group:
            # A way back for the group's state too, should this key fail.
            self._group_start = (
                self._encoded(self._layout.rows["group"]),
                self._visits["group"].save(),
            )
        self.place(payload)

    def place(self, payload: bytes | None) -> None:
        """Put the values of the key's stored row where user code finds them."""
        self._place(self._row, payload)

    def settle_for_good(self) -> None:
        """Bring the key's values to normal copies that nobody changes any more."""
        if not self._lends:
            self._settle_row(self._row)
        self._take_back(self._row)

    def record_all(
        self,
        data: KeyedInput,
        left: list[tuple[Any, ...]],
    ) -> None:
        """Record what the turns of many keys have changed.

        Args:
            data: The keys, with the rows that they began with.
            left: The values that each ended with, settled.
        """
        try:
            fresh: list[bytes | None] = list(map(encode, left))
        except (TypeError, ValueError, OverflowError):
            # Some value is not of its type: find whose, and tell.
            fresh = []
            for n, at in enumerate(zip(data.ids, data.groups, data.keys, strict=True)):
                self.visit.at = at
                self.fields.update(zip(self._row.names, left[n], strict=True))
                left[n], payload = self._packed_row(self._row)
                fresh.append(payload)
        self._log.changed_rows(data, left, fresh)

    def reload(self, payload: bytes | None) -> None:
        """Begin the key's turn anew, as if nothing had run."""
        self.visit.forget()
        self._place(self._row, payload)
        if self._keeps_group:
            row, handles = self._group_start
            self._place(self._layout.rows["group"], row)
            self._visits["group"].rewind(handles)

    def settle(self) -> None:
        """Bring what a step assigned to its type: the next step may be of any epoch.

        Without this, a record could see more (an int where a float is declared, a
        tuple for a list, None for a default) if it shares its epoch with the last one.
        What was changed in place is settled alike, in a copy: nobody has a hold on it.
        """
        fields, settled = self.fields, self._settled
        for name, codec in self._packed:
            value = fields.get(name)
            if codec.is_normal(value):
                continue
            if value is None:
                fields.pop(name, None)
            elif codec.plain is not None or settled.get(name) is not value:
                fields[name] = settled[name] = self._checked(name, codec, value)
        if self.lent:
            self._settle_lent()

    def _settle_lent(self) -> None:
        for each in self.lent:
            each.settle()
        self.lent.clear()

    def store(self, payload: bytes | None) -> None:
        """End the key's turn: record what changed."""
        if self._row.names:
            self._record("key", self.visit.at, payload)
        if self.visit.touched:
            self.visit.flush()

    def with_broadcast_writable(self, action: Callable[[], Any]) -> None:
        """Run user code that may write broadcast state."""
        visit = self._visits["broadcast"]
        visit.is_writable = True
        action()
        self._settle_lent()
        visit.is_writable = False
        self._settle_row(self._layout.rows["broadcast"])
        self._take_back(self._layout.rows["broadcast"])
        self._broadcast_seen = self._encoded(self._layout.rows["broadcast"])
        self._broadcast_pending = self._pending_broadcast()

    def seal(self) -> None:
        """Take what ``open`` has set for what is the same for all keys."""
        if not isinstance(self.user, BuiltIn):
            declared = self._layout.specs.keys() | self._parameters.live.keys()
            made = vars(self._process)
            self._constants = Constants(self._operator, self.user, declared, made)

    def was_used_outside_keys(self) -> bool:
        """Whether values of a key were assigned when it was nobody's turn."""
        self.settle()
        for scope in ("key", "group"):
            self._take_back(self._layout.rows[scope])
        is_used = any(n in self.fields for n in self._names)
        for name in self._names:
            self.fields.pop(name, None)
        return is_used

    def close(self, *, records_broadcast: bool) -> None:
        """End the task's epoch: group state is recorded, broadcast state by one task.

        The other tasks read it from that task's file, at the next epoch.

        Raises:
            StateError: Broadcast state was written outside ``on_broadcast``, or a
                parameter was, or an attribute that is not declared.
        """
        self._parameters.check_unchanged(self._operator, self.fields)
        if self._constants is not None:
            self._constants.check()
        if self.has_group_state:
            self._leave_group()
        visit, row = self._visits["broadcast"], self._layout.rows["broadcast"]
        self._take_back(row)
        if (
            row.names and self._encoded(row) != self._broadcast_seen
        ) or self._pending_broadcast() != self._broadcast_pending:
            raise StateError(
                f"broadcast state of operator {self._operator!r} was written outside"
                " on_broadcast",
                hint="write it in on_broadcast, which runs in every task",
            )
        if not records_broadcast:
            visit.forget()
            return
        if row.names:
            self._record("broadcast", visit.at, self._broadcast_payload)
        visit.flush()

    def _pending_broadcast(self) -> dict[bytes, bytes | None] | None:
        """Return what broadcast handles would write; only if changed in place."""
        if not self._has_broadcast_objects:
            return None
        visit = self._visits["broadcast"]
        kept, saved = visit.log, visit.save()
        visit.log = ChangeLog(self._layout, self._operator)
        visit.flush()
        pending = dict(zip(*visit.log.entries(), strict=True))
        visit.log = kept
        visit.rewind(saved)
        return pending

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
        """As ``settle``, and look also at values that have the right Python type."""
        self.settle()
        for row in self._layout.rows.values():
            self._settle_row(row)
        for visit in self._visits.values():
            visit.check()

    def _place(self, row: Row, payload: bytes | None) -> None:
        fields = self.fields
        if payload is None:
            for name in row.names:
                fields.pop(name, None)
            return
        for name, value in zip(row.names, row.decode(payload), strict=True):
            if value is None:
                fields.pop(name, None)
            else:
                fields[name] = value
        if row.objects:
            self._settled.update({n: fields.get(n) for n in row.objects})

    def _encoded(self, row: Row) -> bytes | None:
        return self._packed_row(row)[1] if row.names else None

    def _packed_row(self, row: Row) -> tuple[tuple[Any, ...], bytes]:
        values = tuple(map(self.fields.get, row.names))
        try:
            return values, encode(values)
        except (TypeError, ValueError, OverflowError):
            self._settle_row(row)
            values = tuple(map(self.fields.get, row.names))
            return values, encode(values)

    def _settle_row(self, row: Row) -> None:
        """Bring all values of a row to their types, also what changed in place."""
        for name, codec in zip(row.names, row.codecs, strict=True):
            value = self.fields.get(name)
            if value is not None:
                self.fields[name] = self._checked(name, codec, value)

    def _checked(self, name: str, codec: Codec, value: Any) -> Any:
        try:
            return codec.normalise(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            key = self.visit.at[2]
            told = StateTypeError(
                operator=self._operator,
                variable=name,
                key=key[0] if key is not None and len(key) == 1 else key,
                expected=f"{codec.type.ddl} ({error})",
                found=value,
            )
            told.line = place_of(self._process, name) or ""
            raise told from error

    def _take_back(self, row: Row) -> None:
        """Leave a default that was lent unset if it is as it was, byte by byte."""
        for name, default in row.copied:
            value = self.fields.get(name)
            try:
                if value is not None and encode(value) == default:
                    del self.fields[name]
            except (TypeError, ValueError, OverflowError):
                continue  # not of its type: who settles it tells

    def _record(self, scope: str, at: At, payload: bytes | None) -> None:
        row = self._layout.rows[scope]
        if row.copied:
            self._take_back(row)
        values, fresh = self._packed_row(row)
        if fresh == payload:
            return
        if row.objects:
            # Normal copies: what the log keeps must not change under it.
            self._settle_row(row)
            values, fresh = self._packed_row(row)
            if fresh == payload:
                return
        if fresh == row.unset:
            if payload is not None:
                self._log.row(scope, at, None, None)
                self._log.added -= 1
            return
        self._log.row(scope, at, values, fresh)
        if payload is None:
            self._log.added += 1

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
        self._place(self._layout.rows["broadcast"], self._broadcast_payload)
        self._broadcast_seen = self._encoded(self._layout.rows["broadcast"])


def _lends_objects(process: KeyedLogic[Any]) -> bool:
    """Tell whether code of the user may change values of the state in place."""
    return process.lends if isinstance(process, BuiltIn) else True


def _is_used(layout: StateLayout, scope: str) -> bool:
    return any(s.scope == scope for s in layout.specs.values())
