"""Reading ahead: what the next epoch reads is shuffled while this one runs.

An epoch leaves cores idle: while its frames are built and planned, while its slowest
task runs, while its manifest is put. If it is known by then what the next one will
read, Spark can fill these gaps. Nothing depends on it: frames that were not made, or
not for these ranges, are made when they are needed.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import inheritable_thread_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.snapshot.records import InputRange

__all__ = ["ReadAhead"]

log = logging.getLogger(__name__)


class ReadAhead:
    """The frames of the next epoch, by stage."""

    def __init__(self, spark: SparkSession) -> None:
        """Begin with none, and without a thread until there is work for it."""
        self._spark = spark
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="riverlock-ahead")
        self._inputs: Mapping[str, InputRange] | None = None
        self._frames: dict[str, DataFrame] = {}

    @contextmanager
    def reading(
        self,
        inputs: Mapping[str, InputRange] | None,
        build: Callable[[Mapping[str, InputRange]], dict[str, DataFrame]],
    ) -> Iterator[None]:
        """Make frames of these ranges, and shuffle their rows, beside the block.

        Building ends with the block: readers are used by one thread at a time. What
        Spark has begun then goes on.
        """
        if inputs is None or inputs == self._inputs:
            yield
            return

        def prepare() -> None:
            frames = build(inputs)
            for frame in frames.values():
                _shuffle(frame)
            self._inputs, self._frames = inputs, frames

        work = self._thread.submit(inheritable_thread_target(self._spark)(prepare))
        try:
            yield
        finally:
            failure = work.exception()
            if failure is not None:
                # The epoch itself will meet it, and tell.
                log.debug("could not read ahead: %s", failure)

    def take(self, stage: str, inputs: Mapping[str, InputRange]) -> DataFrame | None:
        """Return the frame of a stage over these ranges, once, if there is one."""
        return self._frames.pop(stage, None) if inputs == self._inputs else None

    def close(self) -> bool:
        """Forget everything; returns whether Spark may still be at it."""
        self._thread.shutdown()
        found, self._frames = bool(self._frames), {}
        return found


def _shuffle(frame: DataFrame) -> None:
    """Plan a frame, and let Spark begin with its last exchange.

    The job that collects the frame later finds the exchange done, or waits for it.
    """
    plan = frame._jdf.queryExecution().executedPlan()
    exchange = _last_exchange(plan)
    if exchange is not None:
        exchange.submitShuffleJob()


def _last_exchange(plan: Any) -> Any:
    if plan.getClass().getSimpleName() == "ShuffleExchangeExec":
        return plan
    children = plan.children()
    found = (_last_exchange(children.apply(i)) for i in range(children.size()))
    return next((f for f in found if f is not None), None)
