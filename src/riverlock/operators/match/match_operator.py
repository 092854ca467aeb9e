"""``match``: patterns in the events of each key, in the order of their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, SchemaLike, Type, schema_of
from riverlock.core.values.record import record_maker
from riverlock.operators.base import LATE, bind
from riverlock.operators.keyed.key_by_key import KeyByKey
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.operators.match.automaton import Partial, advanced, expired
from riverlock.program.pattern import Pattern
from riverlock.program.process import SideOutput
from riverlock.program.signatures import check_function
from riverlock.program.time_basis import timing_of
from riverlock.state.spec import Map, StateSpec, Value

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from riverlock.flow.stream import Stream
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.program.time_basis import Timing

__all__ = ["Match", "MatchMethod"]


class Match(KeyByKey):
    """Looks for a pattern.

    In event time, records wait until the watermark reaches them, each instant with a
    timer of its own. Timers fire in the order of time, those of deadlines among them:
    at each, everything that happened before it is known and has been looked at. So
    neither the order of arrival nor the ends of epochs matter.
    """

    sides = (LATE,)
    waiting: Any
    partials: Any

    def __init__(
        self,
        pattern: Pattern,
        output: Schema,
        select: Callable[[dict[str, Any]], Any],
        timing: Timing,
    ) -> None:
        """Take the pattern, and what makes rows of its matches."""
        self._pattern = pattern
        self._output = output
        self._select = select
        self._timing = timing

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare the records that wait and the matches in progress."""
        self._columns = columns
        record = Type("struct", fields=columns.fields)
        attributes: dict[str, StateSpec | SideOutput] = {
            "waiting": Map("timestamp", Type("array", element=record)),
            "partials": Value(Type("array", element=_partial_type(record)), default=[]),
            LATE: SideOutput(columns),
        }
        return bind(self, self._output, attributes)

    def open(self) -> None:
        """Prepare to show stored records as users know them."""
        self._record = record_maker(self._columns)

    def on_event(self, record: Any, ctx: OperatorContext) -> list[Any] | None:
        """Let the record wait for its time; without event time, that is now."""
        at = self._timing.instant(ctx)
        if at is None or self._timing.is_late(at, ctx):
            ctx.emit(LATE, tuple(record))
            return None
        if not self._timing.has_event_time:
            left, complete = self._advanced(self._loaded(), [record], at, ctx)
            self._keep(left)
            return self._rows(complete)
        self.waiting.setdefault(at, []).append(tuple(record))
        ctx.set_timer(at)
        return None

    def on_timer(self, at: datetime, ctx: OperatorContext) -> list[Any]:
        """Look at deadlines that are reached, then at what happened then."""
        left, ended = expired(self._pattern, self._loaded(), at)
        events = [self._restored(each) for each in self.waiting.pop(at, ())]
        left, complete = self._advanced(left, events, at, ctx)
        self._keep(left)
        return self._rows([*ended, *complete])

    def give_up_timer(self, at: datetime) -> None:
        """Forget what a timer was for: handling it raised, and it is gone."""
        self.waiting.pop(at, None)
        self._keep([p for p in self._loaded() if p.deadline > at])

    def _advanced(
        self,
        partials: list[Partial],
        events: list[Any],
        at: datetime,
        ctx: OperatorContext,
    ) -> tuple[list[Partial], list[Partial]]:
        """Return the matches in progress after an instant, and those it completes."""
        known = {p.deadline for p in partials}
        complete = []
        for event in events:
            partials, found = advanced(self._pattern, partials, event, at)
            complete += [] if found is None else [found]
        # Those of matches that ended stay and find nothing to do.
        for deadline in {p.deadline for p in partials} - known:
            self._timing.set_timer(deadline, ctx)
        return partials, complete

    def _rows(self, complete: list[Partial]) -> list[Any]:
        return [self._select(each.matched(self._pattern)) for each in complete]

    def _loaded(self) -> list[Partial]:
        """Return the matches in progress whose steps the pattern (still) has."""
        places = {step.name: n for n, step in enumerate(self._pattern.steps)}
        return [
            Partial(
                began=stored.began,
                last=stored.last,
                deadline=stored.deadline,
                taken=tuple(
                    (places[each.step], self._restored(each.record))
                    for each in stored.taken
                ),
            )
            for stored in self.partials
            if all(each.step in places for each in stored.taken)
        ]

    def _keep(self, partials: list[Partial]) -> None:
        steps = self._pattern.steps
        self.partials = [
            (
                p.began,
                p.last,
                p.deadline,
                [(steps[place].name, event) for place, event in p.taken],
            )
            for p in partials
        ]

    def _restored(self, stored: Any) -> Any:
        # What came in this turn has not been through the store.
        is_new = isinstance(stored, tuple)
        return self._record(stored if is_new else msgspec.structs.astuple(stored))


def _partial_type(record: Type) -> Type:
    taken = Type(
        "struct", fields=(Field("step", Type("string")), Field("record", record))
    )
    return Type(
        "struct",
        fields=(
            Field("began", Type("long")),
            Field("last", Type("long")),
            Field("deadline", Type("timestamp")),
            Field("taken", Type("array", element=taken)),
        ),
    )


class MatchMethod(KeyedMethod):
    """``match`` of keyed streams."""

    def match(
        self,
        pattern: Pattern,
        output: SchemaLike,
        select: Callable[[dict[str, Any]], Any],
        *,
        uid: str | None = None,
    ) -> Stream:
        """Look for a pattern in the events of each key.

        Events are looked at in the order of their times, those of one instant in the
        order of arrival, once the watermark reaches them: the result depends neither
        on the order of arrival nor on where epochs end. Late records are not looked
        at; they go to the side output ``late``. Without event time, events are looked
        at as they come, and times are the clock's.

        A match ends all others that had begun before its last event: no event is in two
        matches.

        Args:
            pattern: What ``rl.pattern(...)`` began; it has a ``within``.
            output: Columns of what ``select`` returns.
            select: A function from the events of a match, by name, to a row. Optional
                events that did not come are not among them.
            uid: Stable name of its state; keep it when the code changes.
        """
        if not isinstance(pattern, Pattern):
            raise InvalidFlowError(
                "match(pattern=)", expected="rl.pattern(...)", found=repr(pattern)
            )
        if pattern.span is None:
            raise InvalidFlowError(
                "match(pattern=)",
                expected="a bound on its time, or state would grow for ever",
                found="none",
                hint="end the pattern with .within('10 minutes')",
            )
        check_function("match(select=)", select, 1, of="the events of a match")
        columns = schema_of(output)
        timing = timing_of(self._node, "match", self._columns)
        process = Match(pattern, columns, select, timing)
        return self._apply("match", process, uid, output=columns)
