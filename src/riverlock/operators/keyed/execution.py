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
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import (
    RiverlockError,
    StateCorruptedError,
    StateError,
    StateTypeError,
)
from riverlock.core.times import nearest, to_iso
from riverlock.operators.base import BuiltIn
from riverlock.operators.boundary import dead_letter, user_error
from riverlock.operators.effects import Effects
from riverlock.operators.emission import Emission
from riverlock.operators.keyed.context import OperatorContext
from riverlock.operators.keyed.control import handled_by, handler_of, silently
from riverlock.operators.keyed.instance import Instance
from riverlock.operators.keyed.key_timers import KeyTimers
from riverlock.operators.keyed.loop.inlining import Around, inlined
from riverlock.operators.keyed.loop.key_loop import Turns, compiled
from riverlock.operators.keyed.mentions import users_code
from riverlock.operators.keyed.visited_keys import visited_keys
from riverlock.operators.task_input import KeyedInput
from riverlock.program.process import overrides
from riverlock.state.changelog import ChangeLog
from riverlock.state.columns.python_rows import RowError
from riverlock.state.store import EVENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from riverlock.operators.base import Work
    from riverlock.operators.effects import DeadLetter
    from riverlock.operators.keyed.key_timers import Due

__all__ = ["Execution"]


class Execution:
    """Runs a process over the input of one task and epoch."""

    def __init__(self, work: Work, *, checks_rows: bool = False) -> None:
        """Prepare an instance of the process, bound to this epoch's state.

        Args:
            work: What it runs on.
            checks_rows: Whether each row is checked when it is emitted, not at the end;
                always so if there are dead letters.
        """
        program, layout = work.program, work.layout
        reader, info = work.reader, work.info
        self._work = work
        self.log = ChangeLog(layout, program.uid)
        self._program, self._layout = program, layout
        self._reader = reader
        self._info = info
        self.ctx = OperatorContext(program, info)
        self.dead: list[DeadLetter] = []
        if program.has_dead_letters:
            self.ctx.bury_with(self._bury)
        checks = checks_rows or program.has_dead_letters
        self._emission = Emission(program.outputs, self.ctx, checks=checks)
        self.emitted = self._emission.rows
        self._instance = Instance(program, layout, reader, self.log, info)
        self.ctx.visit = self._instance.visit
        self._user = self._instance.user
        # Only operators of ours have these: a user's methods may have any names.
        self._end_key = self._of_ours("end_key")
        self._give_up_timer = self._of_ours("give_up_timer")
        self._has_timers = overrides(program.process, "on_timer")
        self._is_plain = self._instance.is_plain and not program.has_dead_letters
        self._timers = KeyTimers(self.ctx, reader, self.log, info)

    def run(self, data: KeyedInput | None, dead: Iterable[DeadLetter] = ()) -> Effects:
        """Handle all input of the task; return the effects.

        Args:
            data: The input by key; None: only timers are due.
            dead: Records that cannot be handled, found beforehand.

        Raises:
            UserCodeError: User code raised, and there is no dead-letter sink; or it
                emitted a row that does not fit the columns of its output.
            StateTypeError: User code stored what the declared type cannot hold.
        """
        self.dead.extend(dead)
        data = data or KeyedInput()
        self._handle(data)
        self._work.on_handled()
        return Effects(
            changes=self.log,
            timers=self._timers.heads(),
            outputs={name: self._table(name, data) for name in self._work.outputs},
            dead=self.dead,
        )

    def _handle(self, data: KeyedInput) -> None:
        self._guard("open", silently, self._user.open)
        self._instance.seal()
        for record in data.broadcast:
            step = partial(silently, self._user.on_broadcast, record, self.ctx)
            write = self._instance.with_broadcast_writable
            self._guard("on_broadcast", write, step, record=record)
        self._guard("open or on_broadcast", self._check_no_key_was_needed)
        # Not before: ``open`` may choose what handles records.
        self._on_event = handler_of(self._user, self._program)
        is_exact = self._program.has_dead_letters or self._instance.has_group_state
        self._turns = self._compiled(data, is_exact=is_exact)
        due = self._timers.due()
        try:
            self._visit_all(data, due)
            self._instance.close(records_broadcast=self._work.is_first)
            self.log.table()
        except StateTypeError as error:
            raise self._told(error, data, due) from error

    def _visit_all(self, data: KeyedInput, due: Due) -> None:
        if self._is_plain and not due and not data.initial:
            self._plain_visits(data)
            return
        for position, key_id, key, group in visited_keys(self._work, data, due):
            self._visit(data, position, (key_id, group, key), due.get(key_id, ()))

    def _told(
        self, error: StateTypeError, data: KeyedInput, due: Due
    ) -> RiverlockError:
        """Return an error with its record: its key is visited again to find it.

        The loop does not check how large a number is: that is found when everything is
        stored.
        """
        if error.record is not None:
            return error
        key_id = self.log.refused or self._instance.visit.at[0]
        self._turns = self._compiled(data, is_exact=True)
        self.ctx.timer_changes.clear()
        self._instance.visit.forget()
        for position, found, key, group in visited_keys(self._work, data, due):
            if found == key_id:
                at = (key_id, group, key)
                try:
                    self._visit(data, position, at, due.get(key_id, ()))
                except RiverlockError as told:
                    return told
        return error

    def _table(self, name: str, data: KeyedInput) -> pa.Table:
        """Return the rows of an output, with their event time."""
        try:
            return self._emission.table(name)
        except RowError as error:
            raise self._told_row(error, name, data) from error

    def _told_row(self, error: RowError, name: str, data: KeyedInput) -> RiverlockError:
        """Return an error with its record: everything runs again, checking each row."""
        try:
            Execution(self._work, checks_rows=True)._handle(data)
        except RiverlockError as told:
            return told
        return self._error(error, f"output {name!r}", None)

    def _of_ours(self, method: str) -> Callable[..., Any] | None:
        """Return a method that only operators of ours have, if this one has it."""
        process = self._program.process
        if not isinstance(process, BuiltIn) or not process.has_own(method):
            return None
        found: Callable[..., Any] = getattr(self._user, method)
        return found

    def _check_no_key_was_needed(self) -> None:
        """Refuse what every task would do on its own, or to whichever key comes."""
        if self.ctx.timer_changes:
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
            function=users_code(self._program.process, where),
        )

    def _failed(self, error: Exception, record: Any) -> RiverlockError:
        return self._error(error, handled_by(self._program, record), record)

    def _plain_visits(self, data: KeyedInput) -> None:
        """Visit all keys when there are only records; log what they left at once."""
        left = self._inlined(data) if self._end_key is None else []
        if len(left) < len(data.ids):
            left += self._by_calls(data, len(left), len(data.ids))
        if self._layout.rows["key"].names:
            self._instance.record_all(data, left)

    def _by_calls(
        self, data: KeyedInput, first: int, last: int
    ) -> list[tuple[Any, ...]]:
        """Visit some keys; return what each was left with."""
        mine = slice(first, last)
        keys = zip(data.ids[mine], data.groups[mine], data.keys[mine], strict=True)
        begin, *ends = data.bounds[first : last + 1]
        bounds = [end - begin for end in ends] if begin else ends
        rows = data.records.between(begin, ends[-1]) if begin else data.records
        times = data.times and data.times[begin : ends[-1]]
        return self._turns.visits(keys, data.payloads[mine], bounds, rows, times)

    def _inlined(self, data: KeyedInput) -> list[tuple[Any, ...]]:
        """Visit keys without calls, as far as that is equivalent."""
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
        ctx.generator = ctx.time_us = None
        self._timers.deferred.clear()
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
            ctx.generator = None
            ctx.timer_changes.clear()
            self._timers.deferred.clear()
            self._steps(data, position, due, careful=True)
        instance.store(payload)
        if ctx.timer_changes:
            self._timers.record(at)

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
            fresh = self._timers.newly_due() if self._has_timers else []
            self._fire(sorted({*pending, *fresh}), careful=careful)
        elif self.ctx.timer_changes:
            self._fire_new(careful=careful)
        if self._end_key is not None:
            self._finish(careful=careful)

    def _fire_new(self, *, careful: bool = False) -> None:
        """Fire timers that were set in this turn and are due already."""
        if self._has_timers:
            self._fire(self._timers.newly_due(), careful=careful)

    def _fire_only_new(self) -> None:
        """As ``_fire_new``, in the turn of a key that had no timer due before."""
        self._timers.deferred.clear()
        self._fire_new()

    def _finish(self, *, careful: bool) -> None:
        """Let a built-in operator emit the row of the key."""
        assert self._end_key is not None
        step = partial(self._end_key, self.ctx)
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
            "failed": self._failed,
            "fields": instance.fields,
            "finish": partial(self._finish, careful=False),
            "fire": self._fire_only_new,
            "flush": instance.visit.flush,
            "get": instance.fields.get,
            "islice": islice,
            "lent": instance.lent,
            "on_event": self._on_event,
            "place": instance.place,
            "record_timers": self._timers.record,
            "settle": instance.settle,
            "settle_for_good": instance.settle_for_good,
            "timers": ctx.timer_changes,
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
            has_result=self._end_key is not None,
            lends=instance.has_objects,
            is_exact=is_exact,
            helpers=helpers,
        )

    def _events_carefully(self, data: KeyedInput, position: int) -> None:
        """Run the key's records with a way back; poison goes to the dead letters."""
        span = data.bounds[position : position + 2]
        for i, record in enumerate(data.records.between(*span), span[0]):
            self.ctx.time_us = None if data.times is None else data.times[i]
            self._carefully(record, partial(self._on_event, record, self.ctx))

    def _carefully(self, record: Any, step: Callable[[], Iterable[Any] | None]) -> bool:
        """Run a step; return whether it was not taken back."""
        ctx = self.ctx
        marks, saved = self._emission.marks(), self._instance.save()
        timers = dict(ctx.timer_changes)
        chance = ctx.generator and ctx.generator.getstate()
        try:
            self._emission.emit(step())
            self._instance.check()
            return True
        except StateCorruptedError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of user code
            self._emission.rewind(marks)
            self._instance.rewind(saved)
            ctx.timer_changes = timers
            if ctx.generator and chance:
                ctx.generator.setstate(chance)
            else:
                ctx.generator = None
            self._bury(error, record)
            return False

    def _bury(self, error: Exception, record: Any) -> None:
        letter = dead_letter(
            error,
            operator=self._program.uid,
            key=self.ctx.key,
            record=record,
            epoch=self._info.epoch,
        )
        self.dead.append(letter)

    def _initial(self, data: KeyedInput, position: int, *, careful: bool) -> None:
        self.ctx.time_us = None
        for record in data.initial.get(position, ()):
            step = partial(silently, self._user.on_initial, record, self.ctx)
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
        before, ctx.watermark_us = ctx.watermark_us, self._info.watermark_us
        try:
            yield
        finally:
            ctx.watermark_us = before

    def _fire_all(self, pending: list[tuple[int, int]], *, careful: bool) -> None:
        ctx, waiting = self.ctx, set(pending)
        while pending:
            timer = at_us, kind = heappop(pending)
            waiting.discard(timer)
            if ctx.timer_changes.get((kind, at_us)) is False:
                continue  # deleted by an earlier timer
            ctx.timer_changes[(kind, at_us)] = False
            ctx.time_us = at_us if kind == EVENT else None
            changed = self._timers_changed_by(at_us, careful=careful)
            # One set for the same or an earlier time waits for the next epoch: a
            # timer that sets itself again must not keep the epoch for ever.
            for new in self._timers.due_of(changed):
                if new[0] <= at_us:
                    self._timers.deferred.add(new)
                elif new not in waiting:
                    waiting.add(new)
                    heappush(pending, new)

    def _timers_changed_by(
        self, at_us: int, *, careful: bool
    ) -> Mapping[tuple[int, int], bool]:
        """Fire a timer; return what it set and removed, for a key may have many."""
        ctx = self.ctx
        known, changed = ctx.timer_changes, dict[tuple[int, int], bool]()
        ctx.timer_changes = layered = ChainMap(changed, known)
        at = nearest(at_us)  # lateness may reach beyond the end of time
        step = partial(self._user.on_timer, at, ctx)
        name = f"timer at {to_iso(at_us)}"
        try:
            if careful:
                if not self._carefully(name, step):
                    changed.clear()
                    ctx.timer_changes = layered
                    if self._give_up_timer is not None:
                        self._give_up_timer(at)
                        self._instance.check()
            else:
                self._instance.settle()  # not to be told of the timer
                self._guard("on_timer", self._settled_step, step, record=name)
            known.update(changed)
        finally:
            ctx.timer_changes = known
        return changed

    def _settled_step(self, step: Callable[[], Iterable[Any] | None]) -> None:
        self._emission.emit(step())
        self._instance.settle()
