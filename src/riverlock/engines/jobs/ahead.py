"""Reading ahead: what the next epoch reads is shuffled while this one runs.

An epoch leaves cores idle: while its frames are built and planned, while its slowest
task runs, while its manifest is put. If it is known by then what the next one will
read, Spark can fill these gaps. Nothing depends on it: frames that were not made, or
not for these ranges, are made when they are needed.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark import inheritable_thread_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.snapshot.format.records import InputRange

__all__ = ["ReadAhead"]

log = logging.getLogger(__name__)
_PAUSE: Final = 0.005


class ReadAhead:
    """The frames of the next epoch, by stage."""

    def __init__(self, spark: SparkSession) -> None:
        """Begin with none, and without a thread until there is work for it."""
        self._spark = spark
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="riverlock-ahead")
        # One value, so that ranges and frames are never seen apart.
        self._made: tuple[Mapping[str, InputRange], dict[str, _Shuffled]] = ({}, {})
        # How many tasks the frames are made for.
        self._parallelism = 0
        # The exchanges of the epoch in progress, as far as they were read ahead.
        self._under_way: list[Any] = []

    @contextmanager
    def reading(
        self,
        inputs: Mapping[str, InputRange] | None,
        build: Callable[[Mapping[str, InputRange]], dict[str, DataFrame]],
        parallelism: int,
    ) -> Iterator[None]:
        """Make frames of these ranges, and shuffle their rows, beside the block.

        Building ends with the block, and the frames of the epoch in progress must have
        been made before it: readers and functions of ``transform`` are used by one
        thread at a time. What Spark has begun by then continues.
        """
        work, over = None, threading.Event()
        if parallelism != self._parallelism:
            self._made, self._parallelism = ({}, {}), parallelism
        if inputs is not None and inputs != self._made[0]:
            work = self._begin(inputs, build, over)
        try:
            yield
        finally:
            over.set()
            failure = work and work.exception()
            if failure is not None:
                # The epoch itself will meet it, and tell.
                log.debug("could not read ahead: %s", failure)

    def _begin(
        self,
        inputs: Mapping[str, InputRange],
        build: Callable[[Mapping[str, InputRange]], dict[str, DataFrame]],
        over: threading.Event,
    ) -> Future[None] | None:
        under_way, self._under_way = self._under_way, []

        def prepare() -> None:
            frames = build(inputs)
            # Not before the tasks of this epoch have what they need: they would wait
            # for cores behind those of the next.
            while not all(exchange.isCompleted() for exchange in under_way):
                if over.wait(_PAUSE):
                    break
            made = {stage: _shuffled(frame) for stage, frame in frames.items()}
            self._made = (inputs, made)

        try:
            inherit = inheritable_thread_target(self._spark)
            return self._thread.submit(inherit(prepare))
        except (RuntimeError, Py4JError, ConnectionError) as error:
            # The program is ending, or Spark is gone.
            log.debug("could not read ahead: %s", error)
            return None

    def take(
        self, stage: str, inputs: Mapping[str, InputRange], parallelism: int
    ) -> DataFrame | None:
        """Return the frame of a stage over these ranges, once, if there is one."""
        made, frames = self._made
        is_it = inputs == made and parallelism == self._parallelism
        found = frames.pop(stage, None) if is_it else None
        if found is None:
            return None
        if found.exchange is not None:
            self._under_way.append(found.exchange)
        return found.frame

    def close(self) -> None:
        """Forget everything; what Spark has begun is its owner's to cancel."""
        self._thread.shutdown()
        self._made = ({}, {})


class _Shuffled(NamedTuple):
    """A frame, and the future of its last exchange."""

    frame: DataFrame
    exchange: Any


def _shuffled(frame: DataFrame) -> _Shuffled:
    """Plan a frame, and let Spark begin with its last exchange.

    The job that collects the frame later finds the exchange done, or waits for it.
    """
    exchange = _last_exchange(frame._jdf.queryExecution().executedPlan())
    if exchange is None:
        return _Shuffled(frame, None)
    begun, submitted = exchange.submitShuffleJob(), exchange.futureAction()
    # A thread of Spark's submits it, later. If the frame were collected before that,
    # the stage would be there already, and Spark's scheduler dies of its submission.
    while not (submitted.get().isDefined() or begun.isCompleted()):
        time.sleep(_PAUSE)
    return _Shuffled(frame, begun)


def _last_exchange(plan: Any) -> Any:
    if plan.getClass().getSimpleName() == "ShuffleExchangeExec":
        return plan
    children = plan.children()
    found = (_last_exchange(children.apply(i)) for i in range(children.size()))
    return next((f for f in found if f is not None), None)
