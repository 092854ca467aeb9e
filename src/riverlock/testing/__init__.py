"""For tests: processes without Spark, clocks turned by hand, suites of promises."""

from riverlock.core.clock import ManualClock
from riverlock.testing.harness import Harness, harness
from riverlock.testing.local import LocalRun, run_local
from riverlock.testing.sink_conformance import SinkConformance
from riverlock.testing.sink_run import SinkRun
from riverlock.testing.source_conformance import SourceConformance, SourceRun

__all__ = [
    "Harness",
    "LocalRun",
    "ManualClock",
    "SinkConformance",
    "SinkRun",
    "SourceConformance",
    "SourceRun",
    "harness",
    "run_local",
]
