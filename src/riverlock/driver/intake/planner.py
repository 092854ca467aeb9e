"""Chooses what an epoch reads and what time it is."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.connectors.base.source_reader import Following
from riverlock.coordinator.epoch import PlannedInputs
from riverlock.coordinator.events import Planned
from riverlock.coordinator.markers import Markers
from riverlock.coordinator.watermarks import operator_watermark
from riverlock.core.errors import SourceError
from riverlock.core.times import END_US, to_iso
from riverlock.driver.intake.input_watermarks import (
    at_the_end,
    declared_marks,
    moved_along,
)
from riverlock.driver.intake.skipping import Skipping, tell_left_out
from riverlock.snapshot.format.records import InputRange, Watermark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.bounds import Hold
    from riverlock.coordinator.plan import ChannelPlan
    from riverlock.core.clock import Clock
    from riverlock.driver.intake.admission import Admission
    from riverlock.driver.intake.channel_bounds import ChannelBounds
    from riverlock.driver.intake.region_cuts import Intake, RegionCuts
    from riverlock.driver.intake.region_resets import RegionResets
    from riverlock.driver.intake.turning import Turning
    from riverlock.program.graph import EventTime
    from riverlock.snapshot.format.records import Manifest

__all__ = ["Planner", "planned_event"]

log = logging.getLogger(__name__)
# Clocks are set back by less when they are set right.
_ASTRAY_US = 24 * 3600 * 1_000_000


@dataclass
class Planner:
    """Plans epochs of one run.

    Attributes:
        readers: Sources by uid.
        clock: Where processing time comes from.
        admission: How much an epoch may take.
        operators: Event-time declarations that reach each keyed operator.
        sources: The sources whose rows reach each event-time declaration.
        stops_at_end: ``available_now``: take what is there when the run starts.
        told: The source that tells the watermark of a declaration, by its uid.
        channels: What other regions read of this one.
        cuts: What cuts mean for this region; None: it is the only one.
        skipping: What a region leaves out after a failure.
        bounds: What holds it back while readers of its channels are behind.
        passing: The declarations whose rows reach a channel, or come from one, without
            an operator.
        turning: The region's part in a loop; None: it has none.
        coming_round: Declarations whose rows a loop brings: they have the time of all.
        resets: What resets mean for this region; None: it is the only one.
        goes_back: Whether it must go back before it plans anything: the run is over.
    """

    readers: Mapping[str, Reader]
    clock: Clock
    admission: Admission
    operators: Mapping[str, tuple[EventTime, ...]]
    sources: Mapping[str, tuple[str, ...]]
    stops_at_end: bool
    told: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, ChannelPlan] = field(default_factory=dict)
    cuts: RegionCuts | None = None
    skipping: Skipping = field(default_factory=Skipping)
    bounds: ChannelBounds | None = None
    passing: tuple[tuple[EventTime, ...], ...] = ()
    turning: Turning | None = None
    coming_round: tuple[str, ...] = ()
    resets: RegionResets | None = None
    goes_back: bool = False
    _intake: Intake | None = None
    _latest: dict[str, Any] = field(default_factory=dict)
    # The same, as far as cuts let us read.
    _allowed: dict[str, Any] = field(default_factory=dict)
    _begins: dict[str, Any] = field(default_factory=dict)
    # What the next epoch reads, if that was fixed before its turn came.
    _fixed: dict[str, InputRange] | None = None
    # When the run began to plan: inputs without any rows are idle from then on.
    since_us: int = 0
    lag_rows: dict[str, int | None] = field(default_factory=dict)
    # What keeps it from reading what is there.
    holds: tuple[Hold, ...] = ()
    # Whether regions that we read were over when we last looked for their rows.
    _is_final: bool = True
    # Whether a snapshot has a source wait that has rows.
    _is_paused: bool = False

    @property
    def is_at_end(self) -> bool:
        """Whether the run is over once there is nothing to do.

        What others hold it back from is left to the next run if none of them runs.
        """
        if self.goes_back or not self.stops_at_end:
            return self.goes_back
        if not self._is_final or self._is_paused:
            return False
        return self.bounds is None or self.bounds.are_over(self.holds)

    def plan(
        self, parent: Manifest | None, *, is_asked: bool = False
    ) -> PlannedInputs | None:
        """Return the plan of the next epoch, or None if there is nothing to do.

        Args:
            parent: The epoch before.
            is_asked: Whether an epoch is wanted even if it reads nothing.

        Raises:
            SourceError: A source cannot tell where it is.
        """
        if self.must_go_back(parent):
            return None
        started_us = self.clock.now_us()
        self.since_us = self.since_us or started_us
        # First: what the circle does next is found below.
        has_ended = self.turning is None or self.turning.has_ended
        inputs = self._ranges(parent)
        now_us = _present(parent, started_us)
        marks = self._marks(parent, inputs, now_us, has_ended=has_ended)
        has_rows = any(r.start != r.end for r in inputs.values())
        is_due = (
            has_rows
            or any(r.skipped != 0 for r in inputs.values())
            or self._is_timer_due(parent, marks, now_us)
            or self._is_end_untold(parent, marks)
            or (self._intake is not None and self._intake.is_unheard)
            # Those behind it learn its columns from it, and feed it.
            or (parent is None and self.turning is not None and self.turning.is_apart)
            or (parent is not None and self._reset > parent.reset)
        )
        markers = Markers()
        if self._intake is not None:
            markers = self._intake.markers(self.readers, inputs)
            is_due |= bool(markers.bears)
            if is_due or is_asked:
                inputs = self._intake.past_gaps(self.readers, inputs, self._latest)
                markers = self._intake.markers(self.readers, inputs)
        if not is_due and not is_asked:
            if self.turning is not None:
                self.turning.rests(parent, inputs, self._latest, knows_end=has_ended)
            return None
        if self.turning is not None:
            self.turning.works(parent, inputs)
        self.skipping.taken()
        tell_left_out(inputs)
        if parent is not None and now_us < parent.now_us:
            log.warning(
                "the clock says %s, but had come to %s in epoch %s; going on with what"
                " it says now: timers and expiries that were set then keep their times",
                to_iso(now_us),
                to_iso(parent.now_us),
                parent.epoch,
            )
        return PlannedInputs(
            inputs=inputs,
            watermarks=marks,
            now_us=now_us,
            seed=random.SystemRandom().getrandbits(63),
            started_us=started_us,
            markers=replace(markers, reset=self._reset),
        )

    def must_go_back(self, parent: Manifest | None) -> bool:
        """Tell whether the region is to go back with all others before it plans.

        Raises:
            InvalidConfigError: It has no place in what it is to go back to.
        """
        if self.resets is not None and not self.goes_back:
            before = self._reset
            self.goes_back = self.resets.look(parent)
            if self._reset != before:
                self._fixed = None  # it may read what it must not read now
        return self.goes_back

    @property
    def _reset(self) -> int:
        return self.resets.own if self.resets else 0

    def _marks(
        self,
        parent: Manifest | None,
        inputs: Mapping[str, InputRange],
        now_us: int,
        *,
        has_ended: bool,
    ) -> dict[str, Watermark]:
        """Return the watermarks of an epoch with these inputs.

        Args:
            parent: The epoch before.
            inputs: The ranges.
            now_us: Its processing time.
            has_ended: Whether loops are empty for good, if there are any.

        Raises:
            SourceError: A source that had ended has rows again.
        """
        groups = [*self.operators.values(), *self.passing]
        declared = [d for mine in groups for d in mine if not d.comes_round]
        before = {} if parent is None else _seen_by(parent.watermarks, now_us)
        marks = moved_along(
            groups,
            declared_marks(declared, before, now_us=now_us),
            now_us=now_us,
            since_us=self.since_us,
        )
        marks = self._with_told(marks, inputs, has_ended=has_ended)
        self._check_goes_on(inputs, marks)
        marks = at_the_end(marks, self._ended(inputs) if has_ended else ())
        others = [uid for uid in self.sources if uid not in self.coming_round]
        reached = operator_watermark(others, marks)
        return marks | {
            uid: Watermark(watermark_us=reached) for uid in self.coming_round
        }

    @property
    def _inner(self) -> frozenset[str]:
        """The sources that bring rows of a loop: they end when it does."""
        return frozenset(() if self.turning is None else self.turning.inner)

    def _check_goes_on(
        self, inputs: Mapping[str, InputRange], marks: Mapping[str, Watermark]
    ) -> None:
        """Refuse rows of an input whose time has come to its end: all would be late.

        Raises:
            SourceError: A source that had ended has rows again.
        """
        for uid, sources in self.sources.items():
            if uid not in marks or marks[uid].watermark_us != END_US:
                continue
            for source in set(sources) - self._inner:
                span = inputs[source]
                if span.start != span.end and span.rows != 0:
                    raise SourceError(
                        source,
                        what="it had ended, with the last watermark there is, and now"
                        " has more rows",
                        hint="an input that goes on must not be bounded; begin a new"
                        " store to read it from the start",
                    )

    def _ended(self, inputs: Mapping[str, InputRange]) -> list[str]:
        """Return the declarations whose sources had no more rows before this epoch."""
        over = {
            uid
            for uid, reader in self.readers.items()
            if reader.has_ended(inputs[uid].start, self._latest[uid])
        }
        inner = self._inner
        return [
            uid
            for uid, mine in self.sources.items()
            # Those that another region of the loop tells have its word.
            if self.told.get(uid) not in inner and over.issuperset({*mine} - inner)
        ]

    def _with_told(
        self,
        marks: Mapping[str, Watermark],
        inputs: Mapping[str, InputRange],
        *,
        has_ended: bool,
    ) -> dict[str, Watermark]:
        """Return the watermarks, with those that other regions tell.

        What enters a loop has its end when the loop has.
        """
        found, inner = dict(marks), self._inner
        for uid, source in self.told.items():
            reader, span = self.readers[source], inputs[source]
            assert isinstance(reader, Following)
            told = reader.watermark_us(span.start, span.end)
            if told == END_US and not has_ended and source not in inner:
                continue
            known = [t for t in (found[uid].watermark_us, told) if t is not None]
            found[uid] = msgspec.structs.replace(
                found[uid], watermark_us=max(known, default=None)
            )
        return found

    def _is_end_untold(
        self, parent: Manifest | None, marks: Mapping[str, Watermark]
    ) -> bool:
        """Tell whether time has ended here, and readers of a channel do not know."""
        for uid, channel in self.channels.items():
            known = None if parent is None else parent.outputs.get(uid)
            if known is not None and known.watermark_us == END_US:
                continue
            operators = {
                each: operator_watermark([d.uid for d in self.operators[each]], marks)
                for each in channel.operators
            }
            times = {name: mark.watermark_us for name, mark in marks.items()}
            if channel.watermark_us(operators, times) == END_US:
                return True
        return False

    def _initial(self, uid: str) -> Any:
        """Ask once: a source that counts from now must not begin anew each time."""
        if uid not in self._begins:
            self._begins[uid] = self.readers[uid].initial()
        return self._begins[uid]

    def ahead(self, planned: PlannedInputs) -> Mapping[str, InputRange] | None:
        """Fix what the epoch after this one reads, if waiting would not add to it.

        Only a backlog is read ahead: rows that came later would be late by an epoch.
        """
        if not all(reader.can_read_ahead for reader in self.readers.values()):
            return None
        starts = {uid: span.end for uid, span in planned.inputs.items()}
        ranges = self._share(starts)
        is_full = any(
            self._advance(uid, span.end, 1) != span.end for uid, span in ranges.items()
        )
        has_rows = any(r.start != r.end for r in ranges.values())
        self._fixed = ranges if is_full or (self.stops_at_end and has_rows) else None
        return self._fixed

    def reach(self, uid: str, planned: PlannedInputs) -> None:
        """Ask a source that was away for its end, before tasks read from it again.

        Raises:
            SourceUnavailableError: It does not answer yet.
        """
        if uid in self.readers:
            self.readers[uid].latest(planned.inputs[uid].start)

    def _ranges(self, parent: Manifest | None) -> dict[str, InputRange]:
        """Return what was fixed for these starts, or else choose now."""
        starts = {uid: self._start(uid, parent) for uid in self.readers}
        following = [r for r in self.readers.values() if isinstance(r, Following)]
        # Asked first: what a region has written before it was over is found below.
        self._is_final = not self.stops_at_end or all(r.is_final for r in following)
        for uid, reader in self.readers.items():
            is_open = not self.stops_at_end or reader in following
            if is_open or uid not in self._latest:
                self._latest[uid] = reader.latest(starts[uid])
        intake = None if self.cuts is None else self.cuts.look(parent, starts)

        def limit(uid: str, end: Any) -> Any:
            if self.holds:
                return begins[uid]
            if intake is None:
                return end
            return intake.limit(self.readers[uid], begins[uid], end)

        begins, self._intake, self.holds = starts, intake, ()
        allowed = {uid: limit(uid, end) for uid, end in self._latest.items()}
        self._is_paused = intake is not None and intake.pauses(
            self.readers, starts, self._latest
        )
        self.holds = self._held(parent, has_more=allowed != starts)
        self._allowed = dict(starts) if self.holds else allowed
        left_out = self.skipping.left_out(self.readers, starts, self._latest, limit)
        starts = starts | {uid: each.until for uid, each in left_out.items()}
        fixed, self._fixed = self._fixed, None
        if (
            self.holds
            or fixed is None
            or {u: r.start for u, r in fixed.items()} != starts
        ):
            fixed = self._share(starts)
        for uid, span in fixed.items():
            reader = self.readers[uid]
            self.lag_rows[uid] = reader.rows_between(span.end, self._latest[uid])
        return {
            uid: msgspec.structs.replace(span, skipped=left_out[uid].rows)
            if uid in left_out
            else span
            for uid, span in fixed.items()
        }

    def _held(self, parent: Manifest | None, *, has_more: bool) -> tuple[Hold, ...]:
        """Return what keeps us from reading, if there is anything to read."""
        if self.bounds is None:
            return ()
        found = self.bounds.look(parent)
        return found if has_more else ()

    def _share(self, starts: Mapping[str, Any]) -> dict[str, InputRange]:
        """Share the rows that an epoch may take among the sources that have any."""
        rows = max(1, self.admission.rows // self._waiting(starts))
        return {uid: self._range(uid, starts[uid], rows) for uid in self.readers}

    def _waiting(self, starts: Mapping[str, Any]) -> int:
        """Return how many sources have rows: one row further is somewhere else."""
        if len(starts) == 1:
            return 1
        found = [
            u for u, start in starts.items() if self._advance(u, start, 1) != start
        ]
        return max(1, len(found))

    def _start(self, uid: str, parent: Manifest | None) -> Any:
        known = None if parent is None else parent.inputs.get(uid)
        return self._initial(uid) if known is None else known.end

    def _advance(self, uid: str, start: Any, rows: int) -> Any:
        return self.readers[uid].advance(start, self._allowed[uid], rows)

    def _range(self, uid: str, start: Any, rows: int) -> InputRange:
        reader = self.readers[uid]
        end = self._advance(uid, start, rows)
        return InputRange(start=start, end=end, rows=reader.rows_between(start, end))

    def _is_timer_due(
        self, parent: Manifest | None, marks: Mapping[str, Watermark], now_us: int
    ) -> bool:
        if parent is None:
            return False
        for uid, declared in self.operators.items():
            state = parent.operators.get(uid)
            if state is None:
                continue
            heads = state.timers
            names = [d.uid for d in declared]
            mark = operator_watermark(names, marks, state.watermark_us)
            if heads.processing_us is not None and heads.processing_us <= now_us:
                return True
            is_known = heads.event_us is not None and mark is not None
            if is_known and heads.event_us <= mark:  # type: ignore[operator]
                return True
        return False

    def learn(self, rows: int, took_us: int) -> dict[str, float]:
        """Learn from an epoch that was committed; return what readers noticed."""
        self.admission.learn(rows, took_us)
        noticed: dict[str, float] = {}
        for reader in self.readers.values():
            # How many of the rows were whose is known only if there is one source.
            mine = rows if len(self.readers) == 1 else 0
            for name, value in reader.observed(mine).items():
                noticed[name] = noticed.get(name, 0) + value
        return noticed


def planned_event(region: str, turn: int, planned: PlannedInputs) -> Planned:
    """Return a plan as the coordinator is told of it."""
    return Planned(
        region=region,
        turn=turn,
        inputs=planned.inputs,
        watermarks=planned.watermarks,
        now_us=planned.now_us,
        seed=planned.seed,
        started_us=planned.started_us,
        markers=planned.markers,
        gaps=frozenset(u for u, r in planned.inputs.items() if r.skipped != 0),
    )


def _present(parent: Manifest | None, clock_us: int) -> int:
    """Return the processing time of the next epoch.

    It does not run backwards when a clock is set right. Only if it were to stand still
    for more than a day, the clock had been far wrong: it is followed back.
    """
    before_us = 0 if parent is None else parent.now_us
    return clock_us if before_us - clock_us > _ASTRAY_US else max(clock_us, before_us)


def _seen_by(marks: Mapping[str, Watermark], now_us: int) -> dict[str, Watermark]:
    """Return watermarks whose inputs were active now at the latest."""

    def past(at: int | None) -> int | None:
        return at if at is None else min(at, now_us)

    return {
        name: msgspec.structs.replace(
            mark,
            active_us=past(mark.active_us),
            partitions={
                key: msgspec.structs.replace(part, active_us=past(part.active_us))
                for key, part in mark.partitions.items()
            },
        )
        for name, mark in marks.items()
    }
