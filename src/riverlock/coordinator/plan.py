"""What the coordinator knows about a region before it starts; fixed for a whole run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.core.errors import InternalError
from riverlock.core.guarantees import EXACTLY_ONCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.restart import RestartPolicy
    from riverlock.core.guarantees import Guarantee
    from riverlock.snapshot.format.records import (
        ChannelColumns,
        Meaning,
        Parameter,
        Variable,
    )
    from riverlock.snapshot.format.stored_parameters import Parameters

__all__ = ["ChannelPlan", "OperatorPlan", "RegionPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPlan:
    """A stateful operator: the stage it runs in and the schema of its state."""

    stage: str
    keys: str
    variables: Mapping[str, Variable] = field(default_factory=dict)
    # Declarations whose minimum is its watermark.
    event_times: tuple[str, ...] = ()
    windows: str | None = None
    # As declared: nothing is set.
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPlan:
    """A channel: its watermark is the least of those that its rows follow.

    One that closes a loop has none: its rows do not hold time back.

    Attributes:
        operators: The operators whose watermarks count.
        event_times: The declarations that do.
        columns: What its rows look like.
        is_back: Whether it closes a loop.
    """

    operators: tuple[str, ...] = ()
    event_times: tuple[str, ...] = ()
    columns: ChannelColumns | None = None
    is_back: bool = False

    def watermark_us(
        self,
        operators: Mapping[str, int | None],
        event_times: Mapping[str, int | None],
    ) -> int | None:
        """Return the watermark, given those of operators and declarations."""
        times = [operators.get(uid) for uid in self.operators]
        times += [event_times.get(uid) for uid in self.event_times]
        known = [t for t in times if t is not None]
        return min(known) if known and len(known) == len(times) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPlan:
    """One region of one run.

    Attributes:
        store: Where the flow lives, for messages only.
        flow: The flow's id.
        name: The flow's name, for people; the id stands in for it.
        region: The region's name.
        run: The run number this process has claimed.
        code: Fingerprint of the user's code.
        token: What tells this run from any other, also of a copy of the store.
        stages: Stage ids in the order they run.
        operators: Stateful operators by uid. A stage that runs one is *keyed*: each of
            its ``parallelism`` partitions must vote.
        sinks: Kind of each sink by name.
        places: Where sinks write, in their own words.
        replacing: Sinks that are given the whole table in each epoch.
        channels: What a manifest says of each channel, by uid.
        event_times: Delay in microseconds of each ``event_time`` declaration; None:
            its watermark is told, rows do not move it.
        untold: Those that have no watermark of their own, since a loop brings the rows.
        columns: Columns of sources and of steps of user code, as DDL.
        meanings: What uids stand for.
        guarantee: What is promised about rows that leave the region.
        begins_at_newest: Whether a failure came before this run, and the region goes on
            with the newest input then.
        restart: What to do after a failure.
    """

    store: str
    flow: str
    region: str
    run: int
    key_groups: int
    parallelism: int
    code: str
    stages: tuple[str, ...]
    restart: RestartPolicy
    token: str = ""
    name: str = ""
    operators: Mapping[str, OperatorPlan] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    replacing: frozenset[str] = frozenset()
    channels: Mapping[str, ChannelPlan] = field(default_factory=dict)
    event_times: Mapping[str, int | None] = field(default_factory=dict)
    untold: frozenset[str] = frozenset()
    columns: Mapping[str, str] = field(default_factory=dict)
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    guarantee: Guarantee = EXACTLY_ONCE
    begins_at_newest: bool = False

    def __post_init__(self) -> None:
        """Refuse a plan that no epoch could follow.

        Raises:
            InternalError: The flow was planned wrongly.
        """
        if not self.stages or len(set(self.stages)) != len(self.stages):
            what = f"stages must be distinct and at least one, found {self.stages}"
            raise InternalError(what)
        if self.parallelism < 1:
            what = f"parallelism must be at least 1, found {self.parallelism}"
            raise InternalError(what)
        for uid, operator in self.operators.items():
            if operator.stage not in self.stages:
                what = f"operator {uid!r} runs in unknown stage {operator.stage!r}"
                raise InternalError(what)

    @property
    def parameters(self) -> Parameters:
        """Declared parameters of the operators that have any."""
        return {u: o.parameters for u, o in self.operators.items() if o.parameters}

    def operators_of(self, stage: str) -> tuple[str, ...]:
        """Return the uids of the operators that run in a stage."""
        return tuple(u for u, o in self.operators.items() if o.stage == stage)
