"""A process under test, without Spark: send records, move the clock, look at state.

    h = harness(Velocity(), key="user", input="user string, amount double")
    h.send({"user": "ann", "amount": 3.0})
    assert h.output == [("ann", 3.0)]
    assert h.state("spent", key="ann") == 3.0

The engine that runs it is the one that runs inside Spark's workers, over the memory
store. Each ``send`` is an epoch of its own, so that everything a process remembers goes
through the store between two calls.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from riverlock.core.clock import ManualClock
from riverlock.core.errors import InvalidConfigError
from riverlock.core.hidden_columns import TIME
from riverlock.core.keywords import told_keywords
from riverlock.core.suggestions import did_you_mean
from riverlock.core.times import duration_us, from_micros, micros
from riverlock.core.types import Field, Schema, SchemaLike, schema_of
from riverlock.operators.base import Work
from riverlock.operators.binding import bound_to
from riverlock.operators.keyed.loop.inlining import source_of
from riverlock.operators.running import run_operator
from riverlock.operators.shipped import (
    DEAD_SCHEMA,
    MAIN,
    EpochInfo,
    OperatorProgram,
)
from riverlock.operators.task_input import (
    BROADCASTS,
    EVENTS,
    INITIALS,
)
from riverlock.program.process import overrides
from riverlock.snapshot.format.records import Change
from riverlock.snapshot.format.state_files import encode_table, table_of
from riverlock.snapshot.format.stored_parameters import check_change
from riverlock.state.changelog import ChangeLog
from riverlock.state.copy.memory import MemoryStore
from riverlock.state.copy.rebuilding import changes_of
from riverlock.state.handles import ListHandle, MapHandle, ValueHandle, Visit, bind
from riverlock.state.keys import BROADCAST, group_id, key_bytes, key_group, with_group
from riverlock.state.store import EVENT, PROCESSING, Version
from riverlock.testing.inputs import Input, OneInput, Side, TwoInputs
from riverlock.testing.saved import Saved
from riverlock.testing.sent_rows import Sent, sent_table
from riverlock.testing.two_ways import check_same_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import timedelta

    import pyarrow as pa

    from riverlock.operators.effects import Effects
    from riverlock.program.process import KeyedLogic
    from riverlock.state.spec import StateSpec

__all__ = ["Harness", "Saved", "harness"]

# An arbitrary Monday; tests that care set the clock.
_START_US = micros(from_micros(0).replace(year=2024))
_DEAD = schema_of(DEAD_SCHEMA).names


@told_keywords
def harness(  # noqa: PLR0913 - keywords, each with a default
    process: KeyedLogic[Any],
    *,
    key: str | list[str],
    input: SchemaLike,
    event_time: str | None = None,
    right: SchemaLike | None = None,
    right_key: str | list[str] | None = None,
    right_event_time: str | None = None,
    broadcast: SchemaLike | None = None,
    initial: SchemaLike | None = None,
    uid: str = "process",
    on_error: Literal["fail", "dead_letter"] = "fail",
    clock: ManualClock | None = None,
    seed: int = 0,
    key_groups: int = 128,
    visits_all: bool = False,
    follows_keyed: bool = False,
    updates: bool = False,
) -> Harness:
    """Return a harness around a process.

    Args:
        process: The process, as you pass it to ``KeyedStream.process`` or to
            ``connect(...).process``.
        key: The key column, or several; an empty list for an operator without key.
        input: Columns of the records that ``send`` takes.
        event_time: The timestamp column for ``ctx.time``.
        right: Columns of what ``send_right`` takes, for a process with two inputs or
            with a control input.
        right_key: Its key column, or several, if their names differ.
        right_event_time: Its timestamp column for ``ctx.time``.
        broadcast: Columns of what ``broadcast`` takes.
        initial: Columns of what ``initial`` takes; the key columns among them.
        uid: The operator's name in errors.
        on_error: ``dead_letter`` collects records whose handling raises in
            ``dead_letters``, as a flow with a dead-letter sink does.
        clock: Processing time; by default a clock that begins on 1 January 2024.
        seed: The seed of ``ctx.random``.
        key_groups: As for the flow.
        visits_all: Visit every stored key in every epoch, as ``update_state_by_key``
            does.
        follows_keyed: Handle records before timers and the watermark, as an operator
            does whose records come from another one.
        updates: Emit what a sink with ``mode="update"`` gets from windows as side
            output ``updates``.

    Raises:
        InvalidFlowError: It is not a process, or declares the impossible.
        InvalidConfigError: A column is unknown.
    """
    columns = schema_of(input)
    keys = _columns(columns, key)
    if event_time is not None:
        _column(columns, event_time)
    inputs: Input = OneInput(event_time)
    if right is not None:
        theirs = schema_of(right)
        inputs = TwoInputs(
            left=Side(columns=columns, keys=keys.names, event_time=event_time),
            right=Side(
                columns=theirs,
                keys=_columns(theirs, right_key or key).names,
                event_time=right_event_time,
            ),
            keys=keys,
        )
        columns = inputs.packed
    has_control = right is not None and overrides(process, "on_control")
    bound = bound_to(process, uid, keys, columns, has_updates=updates)
    program = OperatorProgram(
        uid=uid,
        process=bound.process,
        keys=bound.keys,
        input=columns,
        outputs=bound.outputs,
        broadcast=None if broadcast is None else schema_of(broadcast),
        initial=None if initial is None else schema_of(initial),
        has_dead_letters=on_error == "dead_letter",
        visits_all=visits_all,
        follows_keyed=follows_keyed,
        has_control=has_control,
        source=None if has_control else source_of(bound.process),
    )
    return Harness(program, clock or ManualClock(_START_US), inputs, seed, key_groups)


def _columns(columns: Schema, names: str | list[str]) -> Schema:
    names = [names] if isinstance(names, str) else names
    return Schema(tuple(_column(columns, n) for n in names))


def _column(columns: Schema, name: str) -> Field:
    for f in columns.fields:
        if f.name == name:
            return f
    raise InvalidConfigError(
        "harness()",
        expected=f"one of the columns {', '.join(columns.names)}",
        found=repr(name),
        hint=did_you_mean(name, columns.names),
    )


class Harness:
    """Drives a process and shows what it did."""

    def __init__(
        self,
        program: OperatorProgram,
        clock: ManualClock,
        input: Input,
        seed: int,
        key_groups: int,
    ) -> None:
        """Begin before the first epoch; see ``harness``."""
        self.clock = clock
        self.watermark: datetime | None = None
        self.epochs = 0
        self._previous_us: int | None = None  # the watermark of the last epoch
        self.dead_letters: list[dict[str, Any]] = []
        # Records that came too late, or without a time, as ``status`` counts them.
        self.late_rows = 0
        self._program = program
        self._layout = program.layout()
        self._input = input
        self._seed = seed
        self._key_groups = key_groups
        self._store = MemoryStore()
        # The same content by the other way: from columns, as after a crash.
        self._rebuilt = MemoryStore()
        self._changes: list[bytes] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {n: [] for n in program.outputs}
        # Event times of these rows, which a later operator would see.
        self._row_times: dict[str, list[int | None]] = {n: [] for n in self._rows}
        self._pending: list[Sent] | None = None
        self._parameters: dict[str, Any] = {}

    def set(self, **values: Any) -> None:
        """Change parameters (``rl.Param``) from the next epoch.

        Raises:
            InvalidConfigError: There is no such parameter, or a value is not of its
                kind.
        """
        uid = self._program.uid
        known = {uid: self._program.parameters} if self._program.parameters else {}
        change = check_change(known, Change(values={uid: values}))
        self._parameters |= change.values[uid]

    def send(self, *records: Any) -> list[tuple[Any, ...]]:
        """Handle records (dictionaries or tuples) in order; return the rows they emit.

        Outside ``with h.epoch()`` the call is an epoch of its own.
        """
        return self._add([self._sent(record) for record in records])

    def send_right(self, *records: Any) -> list[tuple[Any, ...]]:
        """Handle records of the right side of a process with two inputs.

        In one epoch those of the right side come first, as in Spark.
        """
        return self._add([self._sent(record, is_right=True) for record in records])

    def _sent(
        self, record: Any, time_us: int | None = None, *, is_right: bool = False
    ) -> Sent:
        return Sent(EVENTS, self._input.row(record, is_right=is_right), time_us)

    def send_timed(
        self, records: Iterable[tuple[Any, int | None]], *, is_right: bool = False
    ) -> None:
        """Handle records whose event times are not in a column."""
        self._add([self._sent(r, time_us, is_right=is_right) for r, time_us in records])

    def timed(self, name: str) -> list[tuple[tuple[Any, ...], int | None]]:
        """Return all rows of an output so far, each with its event time."""
        return list(zip(self._rows[name], self._row_times[name], strict=True))

    def broadcast(self, *records: Any) -> None:
        """Send records to ``on_broadcast``."""
        self._add([Sent(BROADCASTS, record) for record in records])

    def initial(self, *records: Any) -> None:
        """Send rows to ``on_initial``."""
        self._add([Sent(INITIALS, record) for record in records])

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Put everything that is sent inside into one epoch."""
        self._pending = []
        try:
            yield
            pending = self._pending
        finally:
            self._pending = None
        self._run(pending)

    def advance_watermark(self, to: datetime | timedelta | str) -> None:
        """Move event time to an instant, or forward by a duration; timers fire."""
        if not isinstance(to, datetime):
            base = 0 if self.watermark is None else micros(self.watermark)
            to = from_micros(base + duration_us(to))
        self.watermark = from_micros(micros(to))
        self._run([])

    def advance_clock(self, by: timedelta | str) -> None:
        """Move processing time forward by a duration; timers fire."""
        self.clock.advance(by)
        self._run([])

    def set_clock(self, to: datetime) -> None:
        """Set processing time; timers fire."""
        self.clock.set_us(micros(to))
        self._run([])

    @property
    def outputs(self) -> dict[str, Schema]:
        """Columns of the outputs: ``main`` and the side outputs."""
        return self._program.outputs

    @property
    def output(self) -> list[tuple[Any, ...]]:
        """All rows of the main output so far, as tuples."""
        return self._rows.get(MAIN, [])

    def rows(self, side: str | None = None) -> list[dict[str, Any]]:
        """Return all rows of an output so far, as dictionaries."""
        name = side or MAIN
        names = self._program.outputs[name].names
        return [dict(zip(names, row, strict=True)) for row in self._rows[name]]

    def side(self, name: str) -> list[tuple[Any, ...]]:
        """Return all rows of a side output so far, as tuples."""
        return self._rows[name]

    def clear_output(self) -> None:
        """Forget the rows so far, so that a test can examine what comes next."""
        for name in self._rows:
            self._rows[name].clear()
            self._row_times[name].clear()
        self.dead_letters.clear()

    def state(self, name: str, key: Any = None) -> Any:
        """Return the state of a key: a value, a list or a dictionary.

        Values that are not set are None (not their default). Group-scoped state is
        that of the key's group; broadcast state needs no key.
        """
        spec = self._layout.specs.get(name)
        if spec is None:
            known = ", ".join(self._layout.specs) or "declared state"
            raise InvalidConfigError(
                "state()",
                expected=known,
                found=repr(name),
                hint=did_you_mean(name, self._layout.specs),
            )
        at = self._at(spec.scope, key)
        if spec.is_packed:
            payload = self._store.get(at)
            row = self._layout.rows[spec.scope]
            at_column = row.names.index(name)
            return None if payload is None else row.decode(payload)[at_column]
        return self._handled(spec, at)

    def timers(self, key: Any, *, processing: bool = False) -> list[datetime]:
        """Return the pending timers of a key, earliest first."""
        kind = PROCESSING if processing else EVENT
        wanted = self._at("key", key)
        due = self._store.due_timers(kind, 1 << 62)
        return [from_micros(at) for at, key_id, _ in due if key_id == wanted]

    def keys(self) -> list[Any]:
        """Return the keys that have state or timers."""
        columns: set[tuple[Any, ...]] = set()
        for change in self._tables():
            columns |= {tuple(k.values()) for k in change["key"].to_pylist() if k}
        found = [k for k in columns if next(self._store.scan(self._id(k)), None)]
        return sorted((k[0] if len(k) == 1 else k for k in found), key=repr)

    def snapshot(self) -> Saved:
        """Return everything that would survive a crash now."""
        return Saved(
            epoch=self.epochs,
            now_us=self.clock.now_us(),
            watermark_us=None if self.watermark is None else micros(self.watermark),
            changes=tuple(self._changes),
            parameters=dict(self._parameters),
        )

    def restart(self, saved: Saved, process: KeyedLogic[Any] | None = None) -> Harness:
        """Return a new harness that continues from a snapshot.

        Args:
            saved: What ``snapshot`` returned, of this harness or another.
            process: A changed version of the process; by default the same one.
        """
        program = replace(self._program, process=process or self._program.process)
        fresh = Harness(
            program,
            ManualClock(saved.now_us),
            self._input,
            self._seed,
            self._key_groups,
        )
        fresh.epochs = saved.epoch
        fresh._parameters = dict(saved.parameters)
        if saved.watermark_us is not None:
            fresh.watermark = from_micros(saved.watermark_us)
            fresh._previous_us = saved.watermark_us
        fresh._changes = saved.declared(fresh._layout)
        for table in fresh._tables():
            changes = changes_of(table, fresh._layout)
            fresh._store.apply(changes, fresh._version())
            fresh._rebuilt.apply(changes, fresh._version())
        return fresh

    def _tables(self) -> Iterator[pa.Table]:

        return (table_of(raw) for raw in self._changes)

    def _version(self) -> Version:
        return Version(self.epochs, "harness", self._layout.digest)

    def _add(self, added: list[Sent]) -> list[tuple[Any, ...]]:
        if self._pending is not None:
            self._pending += added
            return []
        return self._run(added)

    def _run(self, records: list[Sent]) -> list[tuple[Any, ...]]:
        """Run one epoch; if it fails, nothing of it has happened."""
        self.epochs += 1
        now = self.clock.now_us()
        info = EpochInfo(
            epoch=self.epochs,
            now_us=now,
            seed=self._seed + self.epochs,
            watermark_us=None if self.watermark is None else micros(self.watermark),
            previous_us=self._previous_us,
            parameters=dict(self._parameters),
        )
        self._store.purge(now, 1 << 30)
        self._rebuilt.purge(now, 1 << 30)
        table = self._table(records) if records else None
        with self._store.read() as reader:
            work = Work(
                program=self._program,
                layout=self._layout,
                reader=reader,
                info=info,
                table=table,
                wanted=self._program.outputs,
            )
            effects = run_operator(work)
        self._commit(effects)
        self._previous_us = info.watermark_us
        self.late_rows += effects.late
        made = effects.outputs
        for name, table in made.items():
            self._rows[name] += _plain_rows(table, self._program.outputs[name])
            self._row_times[name] += table[TIME].to_pylist()
        self.dead_letters += [
            dict(zip(_DEAD, letter, strict=True)) for letter in effects.dead
        ]
        fresh = made[MAIN].num_rows if MAIN in made else 0
        return self.output[-fresh:] if fresh else []

    def _commit(self, effects: Effects) -> None:
        """Apply the changes in both ways that the engine has; they must agree."""
        raw = encode_table(effects.changes.table())
        self._changes.append(raw)
        ids, _ = effects.changes.entries()
        assert len(set(ids)) == len(ids), "an entry was logged twice"
        live = effects.changes.redo().changes()
        columns = changes_of(table_of(raw), self._layout)
        self._store.apply(live, self._version())
        self._rebuilt.apply(columns, self._version())
        check_same_content(self._store, self._rebuilt, live, columns)

    def _table(self, records: list[Sent]) -> pa.Table:
        program, layout = self._program, self._layout
        return sent_table(records, program, layout, self._input, self._key_groups)

    def _id(self, key: tuple[Any, ...]) -> bytes:
        key = self._layout.key_of(key)
        group = key_group(key, self._program.keys, self._key_groups)
        return with_group(group, key_bytes(key))

    def _at(self, scope: str, key: Any) -> bytes:
        if scope == "broadcast":
            return BROADCAST
        whole = len(self._program.keys.fields) > 1
        entry_id = self._id(tuple(key) if whole else (key,))
        return entry_id if scope == "key" else group_id(int.from_bytes(entry_id[:2]))

    def _handled(self, spec: StateSpec, at: bytes) -> Any:
        log = ChangeLog(self._layout, self._program.uid)
        visit = Visit(self._program.uid, self._store, log, self.clock.now_us())
        visit.at = (at, None, None)
        handle = bind(spec, visit)
        if isinstance(handle, ListHandle):
            return list(handle)
        if isinstance(handle, MapHandle):
            return dict(handle)
        assert isinstance(handle, ValueHandle)
        return handle.get()


def _plain_rows(table: pa.Table, schema: Schema) -> list[tuple[Any, ...]]:
    """Return rows as a reader of the sink would see them."""
    from riverlock.state.codec import codec_of

    columns = [
        codec_of(f.type).from_arrow(table[f.name].to_pylist()) for f in schema.fields
    ]
    return list(zip(*columns, strict=True))
