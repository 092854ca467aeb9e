"""What the loop of a region is made of, by its program and the options of its run."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.connectors.channel.ends import ChannelSink
from riverlock.connectors.outputs import sink_plans
from riverlock.coordinator.plan import RegionPlan
from riverlock.core.guarantees import AT_MOST_ONCE
from riverlock.core.times import duration_us
from riverlock.driver.intake.admission import Admission
from riverlock.driver.intake.apart_circle import ApartCircle
from riverlock.driver.intake.autoscale import Autoscale
from riverlock.driver.intake.channel_bounds import BoundedChannel, ChannelBounds
from riverlock.driver.intake.planner import Planner
from riverlock.driver.intake.region_cuts import RegionCuts
from riverlock.driver.intake.turning import Turning
from riverlock.program.graph import Read, upstream
from riverlock.program.regions import channel_columns, channel_plans
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.stages.stage_tasks import StageTasks

if TYPE_CHECKING:
    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.plan import ChannelPlan
    from riverlock.driver.engine import Engine
    from riverlock.driver.intake.region_resets import RegionResets
    from riverlock.driver.intake.turning import Shared
    from riverlock.driver.region_lives import RegionLives
    from riverlock.driver.run_options import RunOptions
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import Run as Owner
    from riverlock.stages.compiled import CompiledFlow
    from riverlock.storage.base import Storage

__all__ = ["LoopParts"]


@dataclass(frozen=True, kw_only=True)
class LoopParts:
    """What a run makes for its loop, once it owns the store.

    Attributes:
        flow: The program of the region.
        compiled: Its stages.
        storage: The store.
        engine: What runs it.
        options: How to run it.
        owner: The run.
        flow_id: The id of the flow, as the store has it.
        was_well: Whether the run before, if any, ended with nothing half done.
        circle: The regions that feed each other, if this is one of them.
        lives: What is known of other regions; None: there are none.
        resets: What is known of resets; None: the same.
    """

    flow: Program
    compiled: CompiledFlow
    storage: Storage
    engine: Engine
    options: RunOptions
    owner: Owner
    flow_id: str
    was_well: bool
    circle: Shared | None = None
    lives: RegionLives | None = None
    resets: RegionResets | None = None

    def tasks(self) -> StageTasks:
        """Return the tasks of its stages."""
        given = self.options.parallelism
        wanted = given if isinstance(given, int) else self.engine.cores
        return StageTasks(
            compiled=self.compiled,
            storage=self.storage,
            flow=self.flow_id,
            region=self.flow.region,
            run=self.owner.run,
            token=self.owner.token,
            parallelism=min(wanted, self.flow.key_groups),
            working_dir=self._working_dir(),
        )

    def _working_dir(self) -> str:
        """Beside a local store where tasks run here, else in each host's own place."""
        if self.options.working_dir is not None:
            return str(Path(self.options.working_dir).absolute() / self.flow_id)
        local = self.storage.local_path("working")
        if local is not None and self.engine.is_here:
            return str(local.parent / ".working" / self.flow_id)
        # One folder, not two: others may make any in such a place.
        return str(
            Path(tempfile.gettempdir(), f"riverlock-{os.getuid()}-{self.flow_id}")
        )

    def autoscale(self, most: int) -> Autoscale | None:
        """Return what sets the parallelism, if nobody else does."""
        if self.options.parallelism != "auto":
            return None
        target = self.options.epoch_target or "1 second"
        return Autoscale(most=most, target_us=duration_us(target))

    def plan(self, parallelism: int) -> RegionPlan:
        """Return what the coordinator has to know."""
        compiled = self.compiled
        return RegionPlan(
            store=self.storage.uri,
            flow=self.flow_id,
            name=self.flow.name,
            region=self.flow.region,
            run=self.owner.run,
            token=self.owner.token,
            key_groups=self.flow.key_groups,
            parallelism=parallelism,
            code=compiled.code,
            stages=tuple(s.id for s in compiled.stages),
            restart=self.options.restart,
            operators={s.id: s.plan for s in compiled.keyed},
            **sink_plans(self.flow.writes),
            channels=self._channels,
            event_times={
                u: None if n.is_told else n.delay_us
                for u, n in compiled.event_times.items()
            },
            untold=frozenset(self._coming_round),
            columns=compiled.columns,
            meanings=compiled.meanings,
            guarantee=self.flow.guarantee,
            begins_at_newest=self.flow.guarantee == AT_MOST_ONCE and not self.was_well,
        )

    def planner(self, readers: dict[str, Reader]) -> Planner:
        """Return what plans the epochs."""
        options, compiled = self.options, self.compiled
        return Planner(
            readers=readers,
            clock=options.clock,
            admission=Admission(
                target_us=None
                if options.epoch_target is None
                else duration_us(options.epoch_target),
                max_rows=options.max_rows_per_epoch,
            ),
            operators={
                s.id: tuple(compiled.event_times[t] for t in s.event_times)
                for s in compiled.keyed
            },
            sources={
                uid: tuple(n.uid for n in upstream(node) if isinstance(n, Read))
                for uid, node in compiled.event_times.items()
            },
            stops_at_end=options.available_now,
            told={
                uid: node.input.uid
                for uid, node in compiled.event_times.items()
                if node.is_told and isinstance(node.input, Read)
            },
            channels=self._channels,
            cuts=RegionCuts(
                self.flow.region,
                CutLog(self.storage),
                readers,
                frozenset(self.flow.loops),
            )
            if self.flow.is_part or self.flow.is_joined
            else None,
            bounds=self._bounds(),
            passing=tuple(
                tuple(compiled.event_times[uid] for uid in channel.event_times)
                for channel in self._channels.values()
            )
            + tuple((n,) for n in compiled.event_times.values() if n.is_told),
            turning=self._turning(readers),
            coming_round=self._coming_round,
            resets=self.resets,
        )

    def _turning(self, readers: dict[str, Reader]) -> Turning | None:
        """Return the region's part in a circle, if it is in one: it begins now."""
        if self.circle is None:
            return None
        if isinstance(self.circle, ApartCircle):
            self.circle.begin(self.owner.token, continues=not self.was_well)
        loops = {loop.node.uid: loop for loop in self.flow.loops.values()}
        return Turning(self.flow.region, self.circle, readers, loops)

    def _bounds(self) -> ChannelBounds | None:
        """Return what holds the region back while readers are behind, if anything."""
        bounded = tuple(
            BoundedChannel(name=w.uid, reader=w.sink.reader, bound=w.sink.bound)
            for w in self.flow.writes
            if isinstance(w.sink, ChannelSink)
            and w.sink.bound is not None
            and w.sink.reader is not None
        )
        if not bounded or self.lives is None:
            return None
        return ChannelBounds(
            catalog=Catalog(self.storage, self.flow.region),
            channels=bounded,
            clock=self.options.clock,
            is_over=self.lives.is_over,
        )

    @property
    def _coming_round(self) -> tuple[str, ...]:
        """The declarations whose rows a loop brings."""
        times = self.compiled.event_times
        return tuple(uid for uid, node in times.items() if node.comes_round)

    @property
    def _channels(self) -> dict[str, ChannelPlan]:
        """What other regions read of this one."""
        columns = channel_columns(self.flow, self.compiled.uses)
        return channel_plans(self.flow, columns)
