"""For tests of flows: run a process without Spark, turn the clock by hand."""

from riverlock.core.clock import ManualClock
from riverlock.testing.harness import Harness, harness

__all__ = ["Harness", "ManualClock", "harness"]
