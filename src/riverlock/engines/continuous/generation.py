"""The tasks of one generation, as the driver knows them."""

from __future__ import annotations

import logging
import pickle
import time
from typing import TYPE_CHECKING, Final

from riverlock.core.errors import EpochAbortedError, ExchangeError, InternalError
from riverlock.engines.continuous.orders import Kind, packed
from riverlock.exchange.seam import Message, TaskLost
from riverlock.worker.task import decode_outcome

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from riverlock.coordinator.instructions import RunStage
    from riverlock.coordinator.votes import Vote
    from riverlock.engines.continuous.hosts import Hosted, Hosts
    from riverlock.engines.continuous.orders import Share, StageOrder
    from riverlock.exchange.seam import ControlEvent, DriverControl, Shape

__all__ = ["Generation"]

log = logging.getLogger(__name__)

# How long tasks may take to come: a cluster may have to start processes for them.
_JOIN_SECONDS: Final = 300.0
# How often we look whether those who run tasks know more than the tasks could say.
_LOOK_SECONDS: Final = 0.5


class Generation:
    """Runs stages, one after the other, epoch after epoch, until something fails."""

    def __init__(
        self,
        control: DriverControl,
        hosts: Hosts,
        shape: Shape,
        edges: Mapping[str, int],
        cancelled: threading.Event,
    ) -> None:
        """Start nothing yet.

        Args:
            control: What connects us with tasks.
            hosts: What runs them.
            shape: How many there are, and the first epoch.
            edges: The edges of keyed stages.
            cancelled: Set by whoever wants everything to stop.
        """
        self._control, self._hosts, self._shape = control, hosts, shape
        self._keyed, self._cancelled = set(edges), cancelled
        self._hosted: Hosted | None = None
        self._epoch, self._turn = shape.first_epoch, -1
        # Stages of the epoch in progress that have run.
        self._done: set[str] = set()

    def begin(self, setup: bytes) -> None:
        """Start the tasks and wait until they have come.

        Raises:
            ExchangeError: They have not.
            EpochAbortedError: It was cancelled meanwhile.
        """
        began = time.monotonic()
        invitation = self._control.begin(self._shape)
        self._hosted = self._hosts.start(invitation, self._shape.tasks)
        while True:
            try:
                places = self._control.await_tasks(_LOOK_SECONDS)
            except ExchangeError as error:
                self._check_hosts()
                late = time.monotonic() - began > _JOIN_SECONDS
                if error.reason != "timed out" or late:
                    raise
            else:
                break
        for place in places:
            log.debug("task %s: process %s", place.task, place.process)
        self._control.broadcast(Message(Kind.SETUP, setup))

    def fits(self, order: RunStage) -> bool:
        """Tell whether a stage can run here: the next one, or one of the next epoch."""
        if order.parallelism != self._shape.tasks:
            return False
        if (order.epoch, order.turn) == (self._epoch, self._turn):
            return order.stage not in self._done
        return order.epoch == self._epoch + 1 and self._keyed <= self._done

    def is_first(self, order: RunStage) -> bool:
        """Tell whether tasks have heard nothing of an epoch yet."""
        return (order.epoch, order.turn) != (self._epoch, self._turn)

    def run(self, order: StageOrder, share: Sequence[Share]) -> tuple[Vote, ...]:
        """Run one stage on all tasks; return a vote of each.

        Raises:
            RiverlockError: What one of them says went wrong.
            EpochAbortedError: One is gone, or all was cancelled.
        """
        # What is the same for all is packed once.
        common = pickle.dumps(order, protocol=pickle.HIGHEST_PROTOCOL)
        for task, mine in enumerate(share):
            self._control.send(task, Message(Kind.STAGE, common + packed(mine)))
        found: dict[int, Vote] = {}
        while len(found) < self._shape.tasks:
            task, vote = self._next_vote(order)
            found[task] = vote
        if (order.epoch, order.turn) != (self._epoch, self._turn):
            self._epoch, self._turn = order.epoch, order.turn
            self._done.clear()
        self._done.add(order.stage)
        return tuple(found[task] for task in sorted(found))

    def _next_vote(self, order: StageOrder) -> tuple[int, Vote]:
        event = self._control.receive(_LOOK_SECONDS)
        while event is None:
            self._check_hosts()
            event = self._control.receive(_LOOK_SECONDS)
        return self._vote_in(event, order)

    def _vote_in(self, event: ControlEvent, order: StageOrder) -> tuple[int, Vote]:
        if isinstance(event, TaskLost):
            raise EpochAbortedError(
                epoch=order.epoch,
                reason=f"task {event.task} of stage {order.stage!r} is gone",
                cause=self._why_gone() or event.why,
            )
        outcome = decode_outcome(event.message.payload)
        if outcome.error is not None:
            error = pickle.loads(outcome.error)  # noqa: S301 - from our own tasks
            raise error
        if outcome.seed != order.seed or outcome.vote is None:
            message = f"task {event.task} voted for another epoch than {order.epoch}"
            raise InternalError(message)
        return event.task, outcome.vote

    def _why_gone(self) -> str | None:
        return None if self._hosted is None else self._hosted.failure()

    def _check_hosts(self) -> None:
        if self._cancelled.is_set():
            raise EpochAbortedError(
                epoch=self._epoch,
                reason="tasks were told to stop",
                cause="the run was told to stop what runs",
            )
        why = self._why_gone()
        if why is not None:
            raise ExchangeError("tasks ended", what=why)

    def end(self) -> None:
        """End all tasks, and wait until they have ended."""
        self._control.end()
        if self._hosted is not None:
            self._hosted.stop()
            self._hosted = None
