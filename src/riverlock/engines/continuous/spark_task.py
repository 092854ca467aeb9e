"""What Spark runs: kept apart, so that workers load nothing that they do not need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import BarrierTaskContext

from riverlock.engines.continuous.task import run_task

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SparkTask"]


@dataclass(frozen=True)
class SparkTask:
    """Runs a task of ours inside one of Spark's; yields nothing."""

    invitation: bytes

    def __repr__(self) -> str:
        # It holds the secret of the generation.
        return "SparkTask(...)"

    def __call__(self, _: Iterable[int]) -> Iterable[int]:
        """Run it until its generation ends."""
        run_task(self.invitation, BarrierTaskContext.get().partitionId())
        return ()
