"""What the driver makes of what its tasks say, and of their deaths."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from riverlock.coordinator.instructions import RunStage
from riverlock.coordinator.votes import Vote
from riverlock.core.errors import (
    EpochAbortedError,
    ExchangeError,
    InternalError,
    UserCodeError,
)
from riverlock.engines.continuous.generation import Generation
from riverlock.engines.continuous.orders import (
    Kind,
    Share,
    StageOrder,
    failed,
    read_order,
    voted,
)
from riverlock.exchange.limits import Limits
from riverlock.exchange.seam import (
    Answer,
    ControlEvent,
    Message,
    Shape,
    TaskLost,
    TaskPlace,
)

SHAPE = Shape(tasks=2, edges=2, first_epoch=7, limits=Limits())
EDGES = {"a": 0, "b": 1}


@dataclass
class Control:
    """Says what a test tells it to say."""

    events: deque[ControlEvent | None] = field(default_factory=deque)
    sent: list[tuple[int, Message]] = field(default_factory=list)
    late: int = 0
    has_ended: bool = False

    def begin(self, shape: Shape) -> bytes:
        return b"invitation"

    def await_tasks(self, timeout: float) -> tuple[TaskPlace, ...]:
        self.late -= 1
        if self.late >= 0:
            raise ExchangeError("timed out", what="nobody came")
        return ()

    def send(self, task: int, message: Message) -> None:
        self.sent.append((task, message))

    def broadcast(self, message: Message) -> None:
        self.sent += [(task, message) for task in range(SHAPE.tasks)]

    def receive(self, timeout: float | None) -> ControlEvent | None:
        return self.events.popleft() if self.events else None

    def end(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.end()


@dataclass
class Hosts:
    """Where nothing runs."""

    address: str | None = None
    why: str | None = None
    is_stopped: bool = False

    def refusal(self, tasks: int) -> None:
        return None

    def start(self, invitation: bytes, tasks: int) -> Hosts:
        return self

    def failure(self) -> str | None:
        return self.why

    def stop(self) -> None:
        self.is_stopped = True


def asked(epoch: int, turn: int, stage: str, parallelism: int = 2) -> RunStage:
    planned: Any = None
    return RunStage(
        region="main",
        epoch=epoch,
        turn=turn,
        stage=stage,
        planned=planned,
        earlier={},
        parallelism=parallelism,
    )


def order(epoch: int, turn: int, stage: str) -> StageOrder:
    return StageOrder(
        epoch=epoch, turn=turn, stage=stage, seed=3, now_us=0, begun=None, late={}
    )


def answer(task: int, seed: int = 3) -> Answer:
    vote = Vote(partition=task, attempt=f"a{task}")
    return Answer(task=task, message=Message(Kind.OUTCOME, voted(seed, vote)))


def begun(control: Control, hosts: Hosts) -> Generation:
    found = Generation(control, hosts, SHAPE, EDGES, threading.Event())
    found.begin(b"setup")
    return found


SHARES = [Share(pieces={}), Share(pieces=None)]


def test_votes_come_in_the_order_of_tasks() -> None:
    control = Control(deque([answer(1), None, answer(0)]), late=2)
    generation = begun(control, Hosts())

    votes = generation.run(order(7, 4, "a"), SHARES)

    assert [v.partition for v in votes] == [0, 1]
    setups, orders = control.sent[:2], control.sent[2:]
    assert [m for _, m in setups] == [Message(Kind.SETUP, b"setup")] * 2
    assert [(t, read_order(m.payload)) for t, m in orders] == [
        (t, (order(7, 4, "a"), SHARES[t])) for t in range(2)
    ]


def test_stages_run_here_as_long_as_epochs_follow_each_other() -> None:
    control = Control()
    generation = begun(control, Hosts())
    assert generation.is_first(asked(7, 4, "a"))

    for stage in ("a", "write"):
        control.events.extend([answer(0), answer(1)])
        generation.run(order(7, 4, stage), SHARES)

    assert generation.fits(asked(7, 4, "b"))
    assert not generation.is_first(asked(7, 4, "b"))
    assert not generation.fits(asked(7, 4, "a"))  # again
    assert not generation.fits(asked(7, 5, "a"))  # another turn of it
    assert not generation.fits(asked(8, 5, "a"))  # edge b of epoch 7 has no end
    control.events.extend([answer(0), answer(1)])
    generation.run(order(7, 4, "b"), SHARES)
    assert generation.fits(asked(8, 5, "a"))
    assert generation.is_first(asked(8, 5, "a"))
    assert not generation.fits(asked(8, 5, "a", parallelism=3))
    assert not generation.fits(asked(9, 5, "a"))


def test_an_error_of_a_task_is_that_of_the_stage() -> None:
    error = UserCodeError(
        operator="o", where="on_event", cause="ValueError: x", problem="x"
    )
    said = Answer(task=0, message=Message(Kind.OUTCOME, failed(3, error)))
    generation = begun(Control(deque([said])), Hosts())

    with pytest.raises(UserCodeError, match="on_event"):
        generation.run(order(7, 4, "a"), SHARES)


def test_whatever_a_task_raises_can_be_sent() -> None:
    class OddError(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("no")

    for error in (OddError("what"), OSError("full")):
        said = Answer(task=0, message=Message(Kind.OUTCOME, failed(3, error)))
        generation = begun(Control(deque([said])), Hosts())

        with pytest.raises((InternalError, OSError), match=r"what|full"):
            generation.run(order(7, 4, "a"), SHARES)


def test_a_task_that_is_gone_aborts_the_epoch() -> None:
    lost = TaskLost(task=1, why="its connection was closed")
    generation = begun(Control(deque([answer(0), lost])), Hosts())

    with pytest.raises(EpochAbortedError, match="task 1 of stage 'a' is gone"):
        generation.run(order(7, 4, "a"), SHARES)


def test_a_vote_of_another_epoch_is_not_taken() -> None:
    generation = begun(Control(deque([answer(0, seed=9)])), Hosts())

    with pytest.raises(InternalError, match="another epoch"):
        generation.run(order(7, 4, "a"), SHARES)


def test_what_runs_tasks_may_know_why_none_comes() -> None:
    control, hosts = Control(late=5), Hosts(why="no core is free")
    generation = Generation(control, hosts, SHAPE, EDGES, threading.Event())

    with pytest.raises(ExchangeError, match="no core is free"):
        generation.begin(b"setup")
    generation.end()

    assert control.has_ended
    assert hosts.is_stopped


def test_a_run_that_is_told_to_stop_waits_for_no_vote() -> None:
    cancelled = threading.Event()
    generation = Generation(Control(), Hosts(), SHAPE, EDGES, cancelled)
    generation.begin(b"setup")
    cancelled.set()

    with pytest.raises(EpochAbortedError, match="told to stop"):
        generation.run(order(7, 4, "a"), SHARES)
