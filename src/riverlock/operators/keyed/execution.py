"""One operator, one task, one epoch: visits keys and runs user code.

Each key is visited once: due timers by time, then its records in input order, then
timers that became due by them. Keys are visited in the order of their ids, whatever the
order of arrival, so that everything a task does is a function of its input.

Cost (docs/performance.md): a record costs one object and one call, or neither if its
method is written into the loop; a key costs one look-up, one decode and one encode.
Values of the key are plain attributes meanwhile.
"""

from __future__ import annotations

from collections import ChainMap
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from riverlock.core.errors import (
    RiverlockError,
    StateCorruptedError,
    StateError,
    StateTypeError,
)
from riverlock.core.times import nearest, to_iso
from riverlock.operators.boundary import shown, user_error, user_line
from riverlock.operators.emission import Emission
from riverlock.operators.keyed.context import Context
from riverlock.operators.keyed.instance import Instance
from riverlock.operators.keyed.loop.inlining import Around, inlined
from riverlock.operators.keyed.loop.key_loop import Turns, compiled
from riverlock.operators.task_input import KeyedInput
from riverlock.program.process import overrides
from riverlock.state.changelog import ChangeLog
from riverlock.state.codec import encode
from riverlock.state.columns.python_rows import RowError
from riverlock.state.store import EVENT, PROCESSING, StateReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from riverlock.operators.shipped import EpochInfo, OperatorProgram
    from riverlock.state.layout import StateLayout

__all__ = ["Execution"]

_LIMITS = (EVENT, PROCESSING)
# Timers by key id: when, of which kind, and the key as bytes.
Due: TypeAlias = dict[bytes, list[tuple[int, int, bytes]]]


class Execution:
    """Runs a program over the input of one task and epoch."""

    def __init__(
        self,
        program: OperatorProgram,
        layout: StateLayout,
        reader: StateReader,
        info: EpochInfo,
        *,
        is_first: bool,
    ) -> None:
        """Prepare an instance of the user's process bound to this epoch's state.

        Args:
            program: The operator.
            layout: How its state is stored.
            reader: The state at the start of the epoch.
            info: What is the same for all tasks.
            is_first: Whether this task records broadcast state for all.
        """
        self.uid = program.uid
        self.log = ChangeLog(layout, program.uid)
        self._program, self._layout = program, layout
        self._reader = reader
        self._info = info
        late_us = program.late_at(info)
        self.ctx = Context(
            epoch=info.epoch,
            now_us=info.now_us,
            # Rows of other keyed operators come before the watermark that made them.
            watermark_us=late_us,
            seed=info.seed,
        )
        self.ctx._has_event_time = program.has_event_time
        self.ctx._previous_us, self.ctx._late_us = info.previous_us, late_us
        # Records that were left out because they came too late.
        self.late_rows = 0
        self.dead: list[tuple[Any, ...]] = []
        self.ctx._bury = self._dead_letter if program.has_dead_letters else None
        self._emission = Emission(
            program.outputs, self.ctx, checks=program.has_dead_letters
        )
        self.emitted = self._emission.rows
        self._instance = Instance(program, layout, reader, self.log, info)
        self._is_first = is_first
        self.ctx._visit = self._instance.visit
        self._user = self._instance.user
        self._limits = (info.watermark_us, info.now_us)
        # Built-in operators give one row per key at the end of its turn.
        self._result = getattr(self._user, "_result", None)
        # And forget what waited for a timer whose handling raised.
        self._skip = getattr(self._user, "_skip", None)
        self._has_timers = overrides(program.process, "on_timer")
        self._is_plain = self._instance.is_plain and not program.has_dead_letters
        # What has become of timers in this epoch, for the heads of the queue.
        self._timers_gone: set[tuple[int, int, bytes]] = set()
        self._timers_set: dict[int, list[int]] = {EVENT: [], PROCESSING: []}
        # Timers of the current key that are due but wait for the next epoch.
        self._deferred: set[tuple[int, int]] = set()

    def run(self, data: KeyedInput | None) -> None:
        """Handle all input of the task; None: only timers are due.

        Raises:
            UserCodeError: User code raised, and there is no dead-letter sink.
            StateTypeError: User code stored what the declared type cannot hold.
        """
        data = data or KeyedInput()
        self._guard("open", self._silent, self._user.open)
        self._instance.seal()
        for record in data.broadcast:
            step = partial(self._silent, self._user.on_broadcast, record, self.ctx)
            write = self._instance.with_broadcast_writable
            self._guard("on_broadcast", write, step, record=record)
        self._guard("open or on_broadcast", self._check_no_key_was_needed)
        # Not before: ``open`` may choose what handles records.
        is_exact = self._program.has_dead_letters or self._instance.has_group_state
        self._turns = self._compiled(data, is_exact=is_exact)
        due = self._due_timers()
        try:
            self._visit_all(data, due)
            self._instance.close(records_broadcast=self._is_first)
            self.log.table()
        except StateTypeError as error:
            raise self._told(error, data, due) from error

    def _visit_all(self, data: KeyedInput, due: Due) -> None:
        if self._is_plain and not due and not data.initial:
            self._plain_visits(data)
            return
        for position, key_id, key, group in self._visits(data, due):
            self._visit(data, position, (key_id, group, key), due.get(key_id, ()))

    def _told(
        self, error: StateTypeError, data: KeyedInput, due: Due
    ) -> RiverlockError:
        """Return an error with its record: its key is visited again to find it.

        The loop does not look how large a number is: that is found when all is stored.
        """
        if error.record is not None:
            return error
        key_id = self.log.refused or self._instance.visit.at[0]
        self._turns = self._compiled(data, is_exact=True)
        self.ctx._timers.clear()
        self._instance.visit.forget()
        for position, found, key, group in self._visits(data, due):
            if found == key_id:
                at = (key_id, group, key)
                try:
                    self._visit(data, position, at, due.get(key_id, ()))
                except RiverlockError as told:
                    return told
        return error

    def table(self, name: str) -> pa.Table:
        """Return the rows of an output, with their event time.

        Raises:
            RowError: A row does not fit the declared columns.
        """
        return self._emission.table(name)

    def timer_head(self, kind: int) -> int | None:
        """Return the earliest timer that is pending after this epoch."""
        fresh = min(self._timers_set[kind], default=None)
        forever = 1 << 62
        for at, key_id, _ in self._reader.due_timers(kind, forever):
            if (kind, at, key_id) not in self._timers_gone:
                return at if fresh is None else min(at, fresh)
        return fresh

    @staticmethod
    def _silent(call: Callable[..., Any], *args: Any) -> None:
        """Call what cannot give rows; a ``yield`` in it would make it do nothing."""
        if call(*args) is not None:
            raise RowError("only on_event and on_timer can yield or return rows")

    def _check_no_key_was_needed(self) -> None:
        """Refuse what every task would do on its own, or to whichever key comes."""
        if self.ctx._timers:
            raise StateError("timers belong to a key: none can be set here")
        if any(self.emitted.values()):
            raise StateError("rows belong to a key: none can be emitted here")
        if self._instance.was_used_outside_keys():
            raise StateError(
                "state belongs to a key: none can be assigned here or in __init__",
                hint='declare it with scope="broadcast"',
            )

    def _guard(
        self, where: str, call: Callable[..., Any], *args: Any, record: Any = None
    ) -> Any:
        try:
            return call(*args)
        except Exception as error:
            raise self._error(error, where, record) from error

    def _error(self, error: Exception, where: str, record: Any) -> RiverlockError:
        return user_error(
            error,
            operator=self._program.uid,
            where=where,
            key=self.ctx.key,
            record=record,
            epoch=self._info.epoch,
        )

    def _due_timers(self) -> Due:
        """Return stored timers that are due, by key id."""
        due: Due = {}
        for kind in _LIMITS:
            limit = self._limits[kind]
            if limit is not None:
                for at, key_id, payload in self._reader.due_timers(kind, limit):
                    due.setdefault(key_id, []).append((at, kind, payload))
        return due

    def _visits(
        self, data: KeyedInput, due: Due
    ) -> Iterable[tuple[int | None, bytes, tuple[Any, ...], int]]:
        """Give the keys to visit: position in the input (if any), id, key, group."""
        ids = data.ids
        extra = {i: due[i][0][2] for i in due.keys() - set(ids)} if due else {}
        if self._program.visits_all:
            known = {*ids, *extra}
            extra |= {
                i: encode(self._instance.stored_key(p))
                for i, p in self._reader.scan(b"")
                if i not in known
            }
        if not extra:
            for position, key_id in enumerate(ids):
                yield position, key_id, data.keys[position], data.groups[position]
            return
        places: dict[bytes, int] = {i: p for p, i in enumerate(ids)}
        for key_id in sorted([*ids, *extra]):
            place = places.get(key_id)
            if place is not None:
                yield place, key_id, data.keys[place], data.groups[place]
            else:
                key = self._layout.decode_key(extra[key_id])
                yield None, key_id, key, int.from_bytes(key_id[:2], "big")

    def _plain_visits(self, data: KeyedInput) -> None:
        """Visit all keys when records are all there is; log what they left at once."""
        left = self._inlined(data) if self._result is None else []
        if len(left) < len(data.ids):
            left += self._by_calls(data, len(left), len(data.ids))
        if self._layout.rows["key"].names:
            self._instance.record_all(data, left)

    def _by_calls(
        self, data: KeyedInput, first: int, last: int
    ) -> list[tuple[Any, ...]]:
        """Visit some keys; returns what each was left with."""
        mine = slice(first, last)
        keys = zip(data.ids[mine], data.groups[mine], data.keys[mine], strict=True)
        begin, *ends = data.bounds[first : last + 1]
        bounds = [end - begin for end in ends] if begin else ends
        rows = data.records.between(begin, ends[-1]) if begin else data.records
        times = data.times and data.times[begin : ends[-1]]
        return self._turns.visits(keys, data.payloads[mine], bounds, rows, times)

    def _inlined(self, data: KeyedInput) -> list[tuple[Any, ...]]:
        """Visit keys without calls, as far as that is the same."""
        given = self._emission
        around = Around(
            main=given.main,
            width=given.plain_width,
            give=given.give_one,
            give_all=given.give_all,
            by_call=lambda n: self._by_calls(data, n, n + 1)[0],
        )
        program = self._program
        return inlined(
            program.source, self._user, self._layout, program.input, data, around
        )

    def _visit(
        self,
        data: KeyedInput,
        position: int | None,
        at: tuple[bytes, int, tuple[Any, ...]],
        due: Iterable[tuple[int, int, bytes]],
    ) -> None:
        """Run everything of one key and record what it changed."""
        ctx, instance = self.ctx, self._instance
        key = at[2]
        ctx.key = key[0] if len(key) == 1 else key
        ctx._random = ctx._time_us = None
        self._deferred.clear()
        payload = (
            self._reader.get(at[0]) if position is None else data.payloads[position]
        )
        instance.load(at, payload)
        marks = self._emission.marks() if self._program.has_dead_letters else []
        buried = len(self.dead)
        try:
            self._steps(data, position, due, careful=False)
            if self._program.has_dead_letters:
                instance.check()
        except StateCorruptedError:
            raise  # not the user's doing: the copy is rebuilt
        except RiverlockError:
            if not self._program.has_dead_letters:
                raise
            # Again from the start of the key, now with a way back before each step.
            self._emission.rewind(marks)
            del self.dead[buried:]
            instance.reload(payload)
            ctx._random = None
            ctx._timers.clear()
            self._deferred.clear()
            self._steps(data, position, due, careful=True)
        instance.store(payload)
        if ctx._timers:
            self._record_timers(at)

    def _steps(
        self,
        data: KeyedInput,
        position: int | None,
        due: Iterable[tuple[int, int, bytes]],
        *,
        careful: bool,
    ) -> None:
        """Run timers, initial rows and events of the current key."""
        pending = sorted((t, k) for t, k, _ in due)
        if not self._program.follows_keyed:
            self._fire(pending, careful=careful)
        if position is not None:
            if data.initial:
                self._initial(data, position, careful=careful)
            if careful:
                self._events_carefully(data, position)
            else:
                begin, end = data.bounds[position : position + 2]
                self._turns.events(begin, end, data.records, data.times)
        if self._program.follows_keyed:
            fresh = self._newly_due() if self._has_timers else []
            self._fire(sorted({*pending, *fresh}), careful=careful)
        elif self.ctx._timers:
            self._fire_new(careful=careful)
        if self._result is not None:
            self._finish(careful=careful)

    def _fire_new(self, *, careful: bool = False) -> None:
        """Fire timers that were set in this turn and are due already."""
        if self._has_timers:
            self._fire(self._newly_due(), careful=careful)

    def _fire_only_new(self) -> None:
        """As ``_fire_new``, in the turn of a key that had no timer due before."""
        self._deferred.clear()
        self._fire_new()

    def _finish(self, *, careful: bool) -> None:
        """Let a built-in operator give the row of the key."""
        assert self._result is not None
        step = partial(self._result, self.ctx)
        with self._at_the_watermark():
            if careful:
                self._carefully("all records of the key", step)
            else:
                self._instance.settle()  # not to be told of this step
                self._guard("the function", self._settled_step, step)

    def _compiled(self, data: KeyedInput, *, is_exact: bool) -> Turns:
        """Return the hot loop of the whole system, made for this operator."""
        ctx, instance = self.ctx, self._instance
        helpers = {
            "ctx": ctx,
            "emit": self._emission.give,
            "failed": lambda error, record: self._error(error, "on_event", record),
            "fields": instance.fields,
            "finish": partial(self._finish, careful=False),
            "fire": self._fire_only_new,
            "flush": instance.visit.flush,
            "get": instance.fields.get,
            "islice": islice,
            "lent": instance.lent,
            "on_event": self._user.on_event,
            "place": instance.place,
            "record_timers": self._record_timers,
            "settle": instance.settle,
            "settle_for_good": instance.settle_for_good,
            "timers": ctx._timers,
            "touched": instance.visit.touched,
            "visit": instance.visit,
            # What an unset value counts as when types are looked at.
            "bool_": False,
            "bytes_": b"",
            "float_": 0.0,
            "int_": 0,
            "str_": "",
        }
        return compiled(
            self._layout,
            instance.kinds,
            has_times=data.times is not None,
            has_result=self._result is not None,
            lends=instance.has_objects,
            is_exact=is_exact,
            helpers=helpers,
        )

    def _events_carefully(self, data: KeyedInput, position: int) -> None:
        """Run the key's records with a way back; poison goes to the dead letters."""
        begin, end = data.bounds[position : position + 2]
        for i, record in enumerate(data.records.between(begin, end), begin):
            self.ctx._time_us = None if data.times is None else data.times[i]
            self._carefully(record, partial(self._user.on_event, record, self.ctx))

    def _carefully(self, record: Any, step: Callable[[], Iterable[Any] | None]) -> bool:
        """Run a step; returns whether it was not taken back."""
        ctx = self.ctx
        marks, saved = self._emission.marks(), self._instance.save()
        timers = dict(ctx._timers)
        chance = ctx._random and ctx._random.getstate()
        try:
            self._emission.emit(step())
            self._instance.check()
            return True
        except StateCorruptedError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of user code
            self._emission.rewind(marks)
            self._instance.rewind(saved)
            ctx._timers = timers
            if ctx._random and chance:
                ctx._random.setstate(chance)
            else:
                ctx._random = None
            self._dead_letter(error, record)
            return False

    def _dead_letter(self, error: Exception, record: Any) -> None:
        cause = error.__cause__ if isinstance(error, RiverlockError) else None
        traces = [e.__traceback__ for e in (cause, error) if e is not None]
        lines = [*map(user_line, traces), getattr(error, "line", "")]
        self.dead.append(
            (
                self._program.uid,
                shown(self.ctx.key),
                self._info.epoch,
                f"{type(error).__name__}: {error}",
                next(filter(None, lines), ""),
                shown(record),
            )
        )

    def _initial(self, data: KeyedInput, position: int, *, careful: bool) -> None:
        self.ctx._time_us = None
        for record in data.initial.get(position, ()):
            step = partial(self._silent, self._user.on_initial, record, self.ctx)
            if careful:
                self._carefully(record, step)
            else:
                self._guard("on_initial", step, record=record)
                self._guard("on_initial", self._instance.settle, record=record)

    def _fire(self, pending: list[tuple[int, int]], *, careful: bool) -> None:
        """Fire timers in time order; a later one set meanwhile fires in its turn."""
        with self._at_the_watermark():
            self._fire_all(pending, careful=careful)

    @contextmanager
    def _at_the_watermark(self) -> Iterator[None]:
        """Show the epoch's watermark, which records may not have seen yet."""
        ctx = self.ctx
        before, ctx._watermark_us = ctx._watermark_us, self._info.watermark_us
        try:
            yield
        finally:
            ctx._watermark_us = before

    def _fire_all(self, pending: list[tuple[int, int]], *, careful: bool) -> None:
        ctx, waiting = self.ctx, set(pending)
        while pending:
            timer = at_us, kind = heappop(pending)
            waiting.discard(timer)
            if ctx._timers.get((kind, at_us)) is False:
                continue  # deleted by an earlier timer
            ctx._timers[(kind, at_us)] = False
            ctx._time_us = at_us if kind == EVENT else None
            changed = self._timers_changed_by(at_us, careful=careful)
            # One set for the same or an earlier time waits for the next epoch: a
            # timer that sets itself again must not keep the epoch for ever.
            for new in self._due_of(changed):
                if new[0] <= at_us:
                    self._deferred.add(new)
                elif new not in waiting:
                    waiting.add(new)
                    heappush(pending, new)

    def _timers_changed_by(
        self, at_us: int, *, careful: bool
    ) -> Mapping[tuple[int, int], bool]:
        """Fire a timer; returns what it set and removed, for a key may have many."""
        ctx = self.ctx
        known, changed = ctx._timers, dict[tuple[int, int], bool]()
        ctx._timers = layered = ChainMap(changed, known)
        at = nearest(at_us)  # lateness may reach beyond the end of time
        step = partial(self._user.on_timer, at, ctx)
        name = f"timer at {to_iso(at_us)}"
        try:
            if careful:
                if not self._carefully(name, step):
                    changed.clear()
                    ctx._timers = layered
                    if self._skip is not None:
                        self._skip(at)
                        self._instance.check()
            else:
                self._instance.settle()  # not to be told of the timer
                self._guard("on_timer", self._settled_step, step, record=name)
            known.update(changed)
        finally:
            ctx._timers = known
        return changed

    def _settled_step(self, step: Callable[[], Iterable[Any] | None]) -> None:
        self._emission.emit(step())
        self._instance.settle()

    def _newly_due(self) -> list[tuple[int, int]]:
        """Return due timers that were set in this turn, earliest first."""
        return sorted(self._due_of(self.ctx._timers))

    def _due_of(
        self, timers: Mapping[tuple[int, int], bool]
    ) -> Iterator[tuple[int, int]]:
        """Give the timers that are set and due, but for those of the next epoch."""
        for (kind, at), is_on in timers.items():
            limit = self._limits[kind]
            is_due = is_on and limit is not None and at <= limit
            if is_due and (at, kind) not in self._deferred:
                yield at, kind

    def _record_timers(self, at: tuple[bytes, int, tuple[Any, ...]]) -> None:
        for (kind, when), is_on in sorted(self.ctx._timers.items()):
            self.log.timer(at, kind, when, on=is_on)
            if is_on:
                self._timers_set[kind].append(when)
                self._timers_gone.discard((kind, when, at[0]))
            else:
                self._timers_gone.add((kind, when, at[0]))
        self.ctx._timers.clear()
