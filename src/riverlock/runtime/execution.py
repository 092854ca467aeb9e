"""One operator, one task, one epoch: visits keys and runs user code.

Each key is visited once: due timers by time, then its records in input order, then
timers that became due by them. Keys are visited in the order of their ids, whatever the
order of arrival, so that everything a task does is a function of its input.

Cost (docs/performance.md): a record costs one object and one call, a key one look-up,
one decode and one encode. Values of the key are plain attributes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from riverlock.core.errors import RiverlockError
from riverlock.core.times import from_micros
from riverlock.flow.process import overrides
from riverlock.runtime.boundary import shown, user_error, user_line
from riverlock.runtime.context import Context
from riverlock.runtime.inputs import KeyedInput
from riverlock.runtime.instance import Instance
from riverlock.runtime.program import MAIN, EpochInfo, OperatorProgram
from riverlock.state.changelog import ChangeLog
from riverlock.state.codec import encode
from riverlock.state.layout import StateLayout
from riverlock.state.store import EVENT, PROCESSING, StateReader

__all__ = ["Execution"]

Emitted = dict[str, list[tuple[Any, int | None]]]
_LIMITS = (EVENT, PROCESSING)


class Execution:
    """Runs a program over the input of one task and epoch."""

    def __init__(
        self,
        program: OperatorProgram,
        layout: StateLayout,
        reader: StateReader,
        info: EpochInfo,
    ) -> None:
        """Prepare an instance of the user's process bound to this epoch's state."""
        self.log = ChangeLog(layout, program.uid)
        self._program = program
        self._layout = layout
        self._reader = reader
        self._info = info
        self.ctx = Context(
            epoch=info.epoch,
            now_us=info.now_us,
            watermark_us=info.watermark_us,
            seed=info.seed,
        )
        self.emitted: Emitted = {name: [] for name in program.outputs}
        self.dead: list[tuple[Any, ...]] = []
        self.ctx._emitted = {n: r for n, r in self.emitted.items() if n != MAIN}
        self._main = self.emitted.get(MAIN, [])
        self._instance = Instance(program, layout, reader, self.log, info.now_us)
        self.ctx._visit = self._instance.visit
        self._user = self._instance.user
        self._limits = (info.watermark_us, info.now_us)
        self._has_timers = overrides(program.process, "on_timer")
        # What has become of timers in this epoch, for the heads of the queue.
        self._timers_gone: set[tuple[int, int, bytes]] = set()
        self._timers_set: dict[int, list[int]] = {EVENT: [], PROCESSING: []}

    def run(self, data: KeyedInput) -> None:
        """Handle all input of the task.

        Raises:
            UserCodeError: User code raised, and there is no dead-letter sink.
            StateTypeError: User code stored what the declared type cannot hold.
        """
        self._guard("open", self._user.open)
        for record in data.broadcast:
            self._instance.with_broadcast_writable(
                lambda r=record: self._guard(
                    "on_broadcast", self._user.on_broadcast, r, self.ctx, record=r
                )
            )
        due = self._due_timers()
        for position, key_id, key, group in self._visits(data, due):
            self._visit(data, position, (key_id, group, key), due.get(key_id, ()))
        self._instance.close()

    def timer_head(self, kind: int) -> int | None:
        """Return the earliest timer that is pending after this epoch."""
        fresh = min(self._timers_set[kind], default=None)
        forever = 1 << 62
        for at, key_id, _ in self._reader.due_timers(kind, forever):
            if (kind, at, key_id) not in self._timers_gone:
                return at if fresh is None else min(at, fresh)
        return fresh

    def _guard(
        self, where: str, call: Callable[..., Any], *args: Any, record: Any = None
    ) -> Any:
        try:
            return call(*args)
        except Exception as error:  # noqa: BLE001 - the boundary of user code
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

    def _due_timers(self) -> dict[bytes, list[tuple[int, int, bytes]]]:
        """Return stored timers that are due, by key id."""
        due: dict[bytes, list[tuple[int, int, bytes]]] = {}
        for kind in _LIMITS:
            limit = self._limits[kind]
            if limit is not None:
                for at, key_id, payload in self._reader.due_timers(kind, limit):
                    due.setdefault(key_id, []).append((at, kind, payload))
        return due

    def _visits(
        self, data: KeyedInput, due: dict[bytes, list[tuple[int, int, bytes]]]
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
        ctx._random = None
        payload = data.rows.get(at[0])
        if payload is None and position is None:
            payload = self._reader.get(at[0])
        instance.load(at, payload)
        marks = self._marks()
        try:
            self._steps(data, position, due, careful=False)
        except RiverlockError:
            if not self._program.has_dead_letters:
                raise
            # Again from the start of the key, now with a way back before each step.
            self._rewind(marks)
            instance.reload(payload)
            ctx._random = None
            ctx._timers.clear()
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
        if pending:
            self._fire(pending, careful=careful)
        if position is not None:
            if data.initial:
                self._initial(data, position, careful=careful)
            if careful:
                self._events_carefully(data, position)
            else:
                self._events(data, position)
        if self.ctx._timers and self._has_timers:
            self._fire(self._newly_due(None), careful=careful)
        if self._program.visits_all:
            self._emit(self._guard("result", self._user.result, self.ctx))

    def _events(self, data: KeyedInput, position: int) -> None:
        """Run the key's records: the hot loop of the whole system."""
        ctx, on_event, main = self.ctx, self._user.on_event, self._main
        begin, end = data.bounds[position], data.bounds[position + 1]
        times, records = data.times, data.records
        i = begin
        try:
            if times is None:
                for i in range(begin, end):
                    rows = on_event(records[i], ctx)
                    if rows is not None:
                        main.extend([(r, None) for r in rows])
            else:
                for i in range(begin, end):
                    at = ctx._time_us = times[i]
                    rows = on_event(records[i], ctx)
                    if rows is not None:
                        main.extend([(r, at) for r in rows])
        except Exception as error:  # noqa: BLE001 - the boundary of user code
            raise self._error(error, "on_event", records[i]) from error

    def _events_carefully(self, data: KeyedInput, position: int) -> None:
        """Run the key's records with a way back; poison goes to the dead letters."""
        for i in range(data.bounds[position], data.bounds[position + 1]):
            self.ctx._time_us = None if data.times is None else data.times[i]
            record = data.records[i]
            self._carefully(
                "on_event", record, lambda r=record: self._user.on_event(r, self.ctx)
            )

    def _carefully(
        self, where: str, record: Any, step: Callable[[], Iterable[Any] | None]
    ) -> None:
        marks, saved = self._marks(), self._instance.save()
        timers = dict(self.ctx._timers)
        try:
            self._emit(step())
            self._instance.check()
        except Exception as error:  # noqa: BLE001 - the boundary of user code
            self._rewind(marks)
            self._instance.rewind(saved)
            self.ctx._timers = timers
            self._dead_letter(error, record)

    def _dead_letter(self, error: Exception, record: Any) -> None:
        cause = error.__cause__ if isinstance(error, RiverlockError) else None
        trace = (cause or error).__traceback__
        self.dead.append(
            (
                self._program.uid,
                shown(self.ctx.key),
                self._info.epoch,
                f"{type(error).__name__}: {error}",
                user_line(trace),
                shown(record),
            )
        )

    def _emit(self, rows: Iterable[Any] | None) -> None:
        if rows is not None:
            at = self.ctx._time_us
            self._main.extend([(r, at) for r in rows])

    def _initial(self, data: KeyedInput, position: int, *, careful: bool) -> None:
        for record in data.initial.get(position, ()):
            step = lambda r=record: self._user.on_initial(r, self.ctx)  # noqa: E731
            if careful:
                self._carefully("on_initial", record, step)
            else:
                self._guard("on_initial", step, record=record)

    def _fire(self, pending: list[tuple[int, int]], *, careful: bool) -> None:
        """Fire timers in time order; a later one set meanwhile fires in its turn."""
        ctx = self.ctx
        while pending:
            at_us, kind = pending.pop(0)
            if ctx._timers.get((kind, at_us)) is False:
                continue  # deleted by an earlier timer
            ctx._timers[(kind, at_us)] = False
            ctx._time_us = at_us
            step = lambda t=at_us: self._user.on_timer(from_micros(t), ctx)  # noqa: E731
            if careful:
                self._carefully("on_timer", f"timer at {from_micros(at_us)}", step)
            else:
                try:
                    self._emit(step())
                except Exception as error:  # noqa: BLE001 - boundary of user code
                    raise self._error(error, "on_timer", None) from error
            # One set for the same or an earlier time waits for the next epoch: a
            # timer that sets itself again must not keep the epoch for ever.
            later = self._newly_due((at_us, kind))
            pending = sorted({*pending, *later})

    def _newly_due(self, after: tuple[int, int] | None) -> list[tuple[int, int]]:
        found = []
        for (kind, at), is_on in self.ctx._timers.items():
            limit = self._limits[kind]
            if is_on and limit is not None and at <= limit:
                if after is None or at > after[0]:
                    found.append((at, kind))
        return sorted(found)

    def _record_timers(self, at: tuple[bytes, int, tuple[Any, ...]]) -> None:
        for (kind, when), is_on in sorted(self.ctx._timers.items()):
            self.log.timer(at, kind, when, on=is_on)
            if is_on:
                self._timers_set[kind].append(when)
                self._timers_gone.discard((kind, when, at[0]))
            else:
                self._timers_gone.add((kind, when, at[0]))
        self.ctx._timers.clear()

    def _marks(self) -> list[int]:
        return [len(rows) for rows in self.emitted.values()]

    def _rewind(self, marks: list[int]) -> None:
        for rows, mark in zip(self.emitted.values(), marks, strict=True):
            del rows[mark:]

