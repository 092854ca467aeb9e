"""For tests: a process without Spark, a clock turned by hand, suites for sinks."""

from riverlock.core.clock import ManualClock
from riverlock.testing.harness import Harness, harness
from riverlock.testing.local import LocalRun, run_local
from riverlock.testing.sink_conformance import SinkConformance, SinkRun

__all__ = [
    "Harness",
    "LocalRun",
    "ManualClock",
    "SinkConformance",
    "SinkRun",
    "harness",
    "run_local",
]
