"""Sealing: the votes of an epoch and its parent become the manifest to put.

The manifest does not depend on the order in which votes came, and nothing that the
parent knew is lost: inputs without new data, operators and event times that the flow
no longer has are carried on as they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from riverlock.coordinator.epoch import SealedEpoch, epoch_after
from riverlock.coordinator.watermarks import advanced, operator_watermark
from riverlock.core.guarantees import AT_MOST_ONCE
from riverlock.snapshot.file_lists import in_order, listed
from riverlock.snapshot.format.records import (
    FORMAT,
    InputRange,
    Manifest,
    OperatorState,
    SinkOutput,
    TimerHeads,
    Watermark,
)
from riverlock.snapshot.timeline import given, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.coordinator.epoch import Compaction, PendingEpoch
    from riverlock.coordinator.plan import OperatorPlan, RegionPlan
    from riverlock.coordinator.votes import OperatorVote, Vote
    from riverlock.snapshot.format.records import StateFile

__all__ = ["compact", "passed_over", "seal"]


def seal(
    pending: PendingEpoch,
    parent: Manifest | None,
    plan: RegionPlan,
    decided_us: int = 0,
) -> SealedEpoch:
    """Return the epoch that the votes of all stages make of its parent."""
    votes = [v for stage in plan.stages for v in pending.votes[stage]]
    planned = pending.planned
    watermarks = _watermarks(pending, parent, plan, votes)
    operators = _operators(pending, parent, plan)
    manifest = Manifest(
        format=FORMAT,
        flow=plan.flow,
        region=plan.region,
        epoch=epoch_after(parent),
        parent=None if parent is None else parent.epoch,
        run=plan.run,
        started_us=planned.started_us,
        decided_us=decided_us,
        now_us=planned.now_us,
        seed=planned.seed,
        parallelism=plan.parallelism,
        key_groups=plan.key_groups,
        code=plan.code,
        history=_history(parent, plan),
        requests=planned.requests,
        inputs=_inputs(pending, parent),
        columns=dict(plan.columns),
        # Offsets and state of what the code left out are carried on, so this is too.
        meanings={**({} if parent is None else parent.meanings), **plan.meanings},
        watermarks=watermarks,
        operators=operators,
        outputs={
            s: msgspec.structs.replace(
                _output(s, plan, parent, votes),
                watermark_us=_told(s, plan, watermarks, operators),
                columns=plan.channels[s].columns if s in plan.channels else None,
                is_back=s in plan.channels and plan.channels[s].is_back,
            )
            for s in plan.sinks
        },
        markers=planned.markers.bears,
        borne=planned.markers.borne,
        heard=planned.markers.heard,
        reset=max(planned.markers.reset, 0 if parent is None else parent.reset),
        guarantee=plan.guarantee,
        metrics={"stages": {s: _metrics(pending.votes[s]) for s in plan.stages}},
    )
    attempt = f"{plan.run:06d}-{pending.turn}-{plan.token[:12]}"
    manifest, lists = listed(manifest, parent, attempt=attempt)
    return SealedEpoch(
        region=pending.region,
        epoch=manifest.epoch,
        turn=pending.turn,
        manifest=manifest,
        lists=lists,
        compactions=pending.compactions,
    )


def _history(parent: Manifest | None, plan: RegionPlan) -> tuple[tuple[int, str], ...]:
    """Working copies find in it whether their version lies on this timeline."""
    before = () if parent is None else parent.history
    if before and before[-1][1] == plan.token:
        return before
    return joined((*before, (epoch_after(parent), plan.token)))


def _inputs(pending: PendingEpoch, parent: Manifest | None) -> dict[str, InputRange]:
    """Sources left out stay where they were, else they would be read again."""
    before = {} if parent is None else parent.inputs
    idle = {s: InputRange(start=r.end, end=r.end, rows=0) for s, r in before.items()}
    return {**idle, **pending.planned.inputs}


def _watermarks(
    pending: PendingEpoch, parent: Manifest | None, plan: RegionPlan, votes: list[Vote]
) -> dict[str, Watermark]:
    marks = {} if parent is None else dict(parent.watermarks)
    for name, delay_us in plan.event_times.items():
        if name in plan.untold:
            continue
        old = marks.get(name, Watermark())
        marks[name] = advanced(
            old,
            pending.planned.watermarks.get(name, old),
            [v.max_times[name] for v in votes if name in v.max_times],
            [v.partition_times[name] for v in votes if name in v.partition_times],
            delay_us=delay_us,
            now_us=pending.planned.now_us,
        )
    return marks


def _operators(
    pending: PendingEpoch, parent: Manifest | None, plan: RegionPlan
) -> dict[str, OperatorState]:
    before = {} if parent is None else parent.operators
    states: dict[str, OperatorState] = {}
    for uid in (*before, *(u for u in plan.operators if u not in before)):
        old = before.get(uid)
        live = () if old is None else old.files
        for compaction in pending.compactions:
            if compaction.operator == uid:
                live = compact(live, compaction)
        operator = plan.operators.get(uid)
        if operator is not None:
            voted = [v.operators[uid] for v in pending.votes[operator.stage]]
            states[uid] = msgspec.structs.replace(
                _advance(operator, old, live, voted, pending),
                parameters=dict(pending.planned.parameters.get(uid, {})),
            )
        elif old is not None:
            states[uid] = msgspec.structs.replace(old, files=live)
    return states


def _advance(
    operator: OperatorPlan,
    old: OperatorState | None,
    live: tuple[StateFile, ...],
    votes: list[OperatorVote],
    pending: PendingEpoch,
) -> OperatorState:
    added = sum(v.entries_delta for v in votes)
    return OperatorState(
        keys=operator.keys,
        variables=dict(operator.variables),
        files=in_order((*live, *(f for v in votes for f in v.files))),
        timers=TimerHeads(
            event_us=_least(v.timers.event_us for v in votes),
            processing_us=_least(v.timers.processing_us for v in votes),
        ),
        entries=added if old is None else old.entries + added,
        watermark_us=operator_watermark(
            operator.event_times,
            pending.planned.watermarks,
            None if old is None else old.watermark_us,
        ),
        windows=operator.windows,
        since=pending.epoch if old is None else old.since,
        was=None if old is None else old.was,
    )


def compact(
    live: tuple[StateFile, ...], compaction: Compaction
) -> tuple[StateFile, ...]:
    """Return the live files after a compaction, or as they were if it does not fit.

    It fits if all files it replaces are live, and none that stays lies between them:
    later files win, so such a file would win over newer entries or lose to older ones.
    """
    replaced = set(compaction.replaced)
    if not replaced or not replaced <= {f.path for f in live}:
        return live
    kept = [f for f in live if f.path not in replaced]
    if any(_overlap(new, old) for new in compaction.by for old in kept):
        return live
    return in_order((*kept, *compaction.by))


def _overlap(a: StateFile, b: StateFile) -> bool:
    epochs = a.first_epoch <= b.last_epoch and b.first_epoch <= a.last_epoch
    groups = a.first_group < b.end_group and b.first_group < a.end_group
    return epochs and (groups or (a.shared and b.shared))


def passed_over(manifest: Manifest, sinks: frozenset[str]) -> Manifest:
    """Return a parent without output for sinks that are not given it."""
    if not sinks:
        return manifest
    outputs = dict(manifest.outputs)
    for sink in sinks & outputs.keys():
        outputs[sink] = msgspec.structs.replace(
            outputs[sink], tokens=(), rows=0, replaces=False
        )
    return msgspec.structs.replace(manifest, outputs=outputs)


def _output(
    sink: str, plan: RegionPlan, parent: Manifest | None, votes: list[Vote]
) -> SinkOutput:
    return SinkOutput(
        kind=plan.sinks[sink],
        tokens=tuple(t for v in votes for t in v.outputs.get(sink, ())),
        rows=sum(v.output_rows.get(sink, 0) for v in votes),
        run=plan.token,
        place=plan.places.get(sink, ""),
        replaces=sink in plan.replacing,
        before=_before(sink, plan, parent),
    )


def _told(
    sink: str,
    plan: RegionPlan,
    watermarks: Mapping[str, Watermark],
    operators: Mapping[str, OperatorState],
) -> int | None:
    """Return what a channel says of time after this epoch; None for other sinks.

    Rows of later epochs that an operator emits are after what it saw in this one.
    """
    if sink not in plan.channels:
        return None
    return plan.channels[sink].watermark_us(
        {uid: state.watermark_us for uid, state in operators.items()},
        {uid: mark.watermark_us for uid, mark in watermarks.items()},
    )


def _before(sink: str, plan: RegionPlan, parent: Manifest | None) -> int | None:
    """Return the newest epoch that a sink has for sure: all of the parent's have it."""
    known = None if parent is None else parent.outputs.get(sink)
    if plan.guarantee == AT_MOST_ONCE:
        return None  # it may lack any
    if known is None or known.place != plan.places.get(sink, ""):
        return None
    assert parent is not None
    return given(parent, sink)


def _metrics(votes: tuple[Vote, ...]) -> dict[str, float]:
    total: dict[str, float] = {"tasks": len(votes), "rows": 0}
    for vote in votes:
        total["rows"] += vote.rows
        for name, value in vote.metrics.items():
            total[name] = total.get(name, 0) + value
    return total


def _least(values: Iterable[int | None]) -> int | None:
    return min((v for v in values if v is not None), default=None)
