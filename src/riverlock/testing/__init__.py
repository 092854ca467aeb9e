"""For tests of flows: run a process without Spark, turn the clock by hand."""

from riverlock.core.clock import ManualClock
from riverlock.testing.harness import Harness, harness
from riverlock.testing.local import LocalRun, run_local

__all__ = ["Harness", "LocalRun", "ManualClock", "harness", "run_local"]
