"""Reads and plays transcripts: what is told (>), ordered (<) and believed (=).

plan parallelism=2 attempts=2      first line, after comments
> recovered none                   an event; unless given, its turn and epoch are
                                   those of the newest order
< PlanInputs epoch=0 …             all orders that it leads to, in order
= PLANNING                         the phase after it
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tests.unit.coordinator.builders import (
    REGION,
    count_vote,
    make_manifest,
    make_plan,
    read_vote,
)

from riverlock.coordinator import (
    AbortEpoch,
    AbortReason,
    CleanUp,
    CommitOutcome,
    CommitSink,
    Event,
    Fenced,
    FixedDelay,
    GiveUpSink,
    Instruction,
    ManifestPut,
    NoRestart,
    NothingToDo,
    PlanFailed,
    PlanInputs,
    Planned,
    PlannedInputs,
    PublishStatus,
    PutFailed,
    PutManifest,
    Recovered,
    RegionCoordinator,
    RegionPlan,
    Reread,
    RereadFailed,
    RestartAfter,
    Restarted,
    RetrySink,
    RunStage,
    SinkCommitted,
    SinkFailed,
    StageFailed,
    StageVoted,
    Stop,
    StopRequested,
    Wait,
)
from riverlock.core.guarantees import EXACTLY_ONCE
from riverlock.snapshot.format.records import InputRange, SinkOutput

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["play"]


def play(path: Path) -> None:
    """Play a transcript and fail at the first line that differs."""
    lines = path.read_text(encoding="utf-8").splitlines()
    told = [(n, x) for n, x in enumerate(lines, 1) if x.strip() and x[0] != "#"]
    player = _Player(_plan(told[0][1]))
    for number, line in told[1:]:
        player.step(line, f"{path.name}:{number}")
    assert not player.orders, f"{path.name} ends before {player.orders}"


class _Player:
    def __init__(self, plan: RegionPlan) -> None:
        self.coordinator = RegionCoordinator(plan)
        self.orders: list[str] = []
        self.turn = 0
        self.epoch = 0

    def step(self, line: str, at: str) -> None:
        mark, _, rest = line.partition(" ")
        match mark:
            case ">":
                assert not self.orders, f"{at}: before it came {self.orders}"
                orders = self.coordinator.handle(self._event(rest))
                self.coordinator.validate()
                for order in orders:
                    self.turn = getattr(order, "turn", self.turn)
                    self.epoch = getattr(order, "epoch", self.epoch)
                self.orders = [_show(order) for order in orders]
            case "<":
                found = self.orders.pop(0) if self.orders else "nothing"
                assert found == rest.strip(), at
            case "=":
                assert self.coordinator.phase.name == rest.strip(), at
            case _:
                raise AssertionError(f"{at}: {line!r} is no line of a transcript")

    def _event(self, text: str) -> Event:  # noqa: C901 - one case for each kind
        name, *words = shlex.split(text)
        args = [w for w in words if "=" not in w]
        given = dict(w.split("=", 1) for w in words if "=" in w)
        turn = int(given.get("turn", self.turn))
        epoch = int(given.get("epoch", self.epoch))
        first = args[0] if args else ""
        retryable, is_away = "final" not in args, "away" in args
        plan = self.coordinator.plan
        match name:
            case "recovered" if first == "none":
                return Recovered(region=REGION, newest=None)
            case "recovered":
                outputs = {s: SinkOutput(kind=k) for s, k in plan.sinks.items()}
                newest = make_manifest(
                    epoch,
                    run=int(given["run"]),
                    end=int(given["end"]),
                    outputs=outputs,
                    guarantee=_guarantee(given.get("as", plan.guarantee)),
                )
                return Recovered(region=REGION, newest=newest)
            case "reread-failed":
                return RereadFailed(region=REGION, cause="slow", retryable=retryable)
            case "planned":
                start, _, end = first.partition("..")
                skipped = int(given.get("skipped", 0))
                return Planned(
                    region=REGION,
                    turn=turn,
                    inputs={
                        "in": InputRange(
                            start=int(start), end=int(end), skipped=skipped
                        )
                    },
                    watermarks={},
                    now_us=100,
                    seed=1,
                    started_us=100,
                    gaps=frozenset({"in"} if skipped else ()),
                )
            case "nothing":
                return NothingToDo(region=REGION, turn=turn)
            case "plan-failed":
                return PlanFailed(
                    region=REGION,
                    turn=turn,
                    reason=AbortReason.AWAY if is_away else AbortReason.PLANNING,
                    cause="gone",
                    retryable=retryable,
                )
            case "voted":
                width = int(given.get("votes", plan.parallelism))
                votes = tuple(
                    count_vote(p, epoch) if first == "count" else read_vote(p)
                    for p in range(width)
                )
                return StageVoted(region=REGION, turn=turn, stage=first, votes=votes)
            case "failed":
                return StageFailed(
                    region=REGION,
                    turn=turn,
                    stage=first,
                    reason=AbortReason.AWAY if is_away else AbortReason.TASK,
                    cause="died",
                    retryable=retryable,
                )
            case "put":
                return ManifestPut(
                    region=REGION, turn=turn, created=first == "created", decided_us=200
                )
            case "put-failed":
                return PutFailed(
                    region=REGION, turn=turn, cause="slow", retryable=retryable
                )
            case "committed":
                return SinkCommitted(region=REGION, sink=first, epoch=epoch)
            case "sink-failed":
                return SinkFailed(
                    region=REGION,
                    sink=first,
                    epoch=epoch,
                    outcome=CommitOutcome[args[1].upper()],
                    cause="down",
                )
            case "stop":
                return StopRequested(region=REGION)
            case "fenced":
                return Fenced(region=REGION, owner=first)
            case "restarted":
                return Restarted(region=REGION)
            case _:
                raise AssertionError(f"no such event: {text}")


def _plan(line: str) -> RegionPlan:
    word, *settings = line.split()
    assert word == "plan", line
    given = dict(s.split("=", 1) for s in settings)
    attempts = int(given.get("attempts", 2))
    sinks = given.get("sinks", "out").split(",")
    return make_plan(
        parallelism=int(given.get("parallelism", 2)),
        restart=FixedDelay(delay_us=10, attempts=attempts) if attempts else NoRestart(),
        sinks=dict.fromkeys(sinks, "files"),
        guarantee=_guarantee(given.get("guarantee", EXACTLY_ONCE)),
        begins_at_newest=given.get("begins") == "newest",
    )


def _guarantee(text: str) -> str:
    """Read a guarantee, which is one word here."""
    return text.replace("_", " ")


def _show(order: Instruction) -> str:  # noqa: C901 - one line for each kind
    match order:
        case PlanInputs():
            parent = "none" if order.parent is None else order.parent.epoch
            again = "newest" if order.skips else _range(order.retry_of)
            return (
                f"PlanInputs epoch={order.epoch} turn={order.turn}"
                f" parent={parent} again={again}"
            )
        case RunStage():
            after = ",".join(order.earlier) or "none"
            return f"RunStage {order.stage} epoch={order.epoch} after={after}"
        case PutManifest():
            files = [f.path for f in order.manifest.operators["count"].files]
            return f"PutManifest epoch={order.epoch} files={','.join(files)}"
        case CommitSink():
            tokens = ",".join(order.output.tokens) or "none"
            return f"CommitSink {order.sink} epoch={order.epoch} tokens={tokens}"
        case RetrySink():
            return f"RetrySink {order.sink} epoch={order.epoch} attempt={order.attempt}"
        case GiveUpSink():
            return f"GiveUpSink {order.sink} epoch={order.epoch} rows={order.rows}"
        case PublishStatus() | CleanUp():
            return f"{type(order).__name__} epoch={order.epoch}"
        case AbortEpoch():
            return f"AbortEpoch epoch={order.epoch} {order.reason.name}"
        case RestartAfter():
            return f"RestartAfter {order.delay_us}us attempt={order.attempt}"
        case Wait() | Reread():
            return type(order).__name__
        case Stop():
            return f"Stop {'ok' if order.error is None else order.error.code}"


def _range(planned: PlannedInputs | None) -> str:
    if planned is None:
        return "no"
    chosen = planned.inputs["in"]
    return f"{chosen.start}..{chosen.end}"
