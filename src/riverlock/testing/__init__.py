"""For tests: processes without Spark, clocks moved by hand, conformance suites."""

from typing import TYPE_CHECKING, Any

from riverlock.core.clock import ManualClock
from riverlock.testing.harness import Harness, harness
from riverlock.testing.row_lists import rows
from riverlock.testing.sink_conformance import SinkConformance
from riverlock.testing.sink_run import SinkRun
from riverlock.testing.source_conformance import SourceConformance, SourceRun

if TYPE_CHECKING:
    from riverlock.testing.local import LocalRun, run_local

__all__ = [
    "Harness",
    "LocalRun",
    "ManualClock",
    "SinkConformance",
    "SinkRun",
    "SourceConformance",
    "SourceRun",
    "harness",
    "rows",
    "run_local",
]


def __getattr__(name: str) -> Any:
    """Load what runs whole flows when it is asked for: a harness needs no LMDB."""
    if name in ("LocalRun", "run_local"):
        from riverlock.testing import local

        return getattr(local, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
