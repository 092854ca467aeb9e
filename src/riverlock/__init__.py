"""Riverlock: reliable, stateful stream processing for people who write PySpark.

The one public door. Names are loaded when first used: importing the package loads
neither PySpark nor LMDB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from riverlock._version import __version__
from riverlock.flow.engine_door import answer_with

if TYPE_CHECKING:
    from riverlock import sinks, sources, stores, tables, testing
    from riverlock.coordinator.bounds import Bound
    from riverlock.core import errors
    from riverlock.core.errors import RiverlockError
    from riverlock.core.times import days, hours, milliseconds, minutes, seconds
    from riverlock.driver.handle import Handle
    from riverlock.driver.run_options import RunKeywords
    from riverlock.flow.engine_door import Engines
    from riverlock.flow.flow import Flow
    from riverlock.flow.keyed_stream import KeyedStream
    from riverlock.flow.stream import Stream
    from riverlock.flow.windowed import WindowedStream
    from riverlock.operators.aggregates.aggregator import Aggregator
    from riverlock.program.context import Context
    from riverlock.program.drawing.graph_model import Graph
    from riverlock.program.params import Param
    from riverlock.program.pattern import pattern
    from riverlock.program.process import Process, SideOutput
    from riverlock.program.triggers import at_watermark, early
    from riverlock.program.two_inputs import TwoInputProcess
    from riverlock.program.windows import (
        count_windows,
        global_window,
        sessions,
        sliding,
        tumbling,
    )
    from riverlock.query.opened_store import open_store as open
    from riverlock.replay.report import Replay
    from riverlock.snapshot.format.run_status import Status
    from riverlock.spark.session import local_session as spark_session
    from riverlock.state.spec import List, Map, Reducing, Value

_HOMES = {
    "Aggregator": "riverlock.operators.aggregates.aggregator",
    "Bound": "riverlock.coordinator.bounds",
    "Context": "riverlock.program.context",
    "Flow": "riverlock.flow.flow",
    "Graph": "riverlock.program.drawing.graph_model",
    "Handle": "riverlock.driver.handle",
    "KeyedStream": "riverlock.flow.keyed_stream",
    "List": "riverlock.state.spec",
    "Map": "riverlock.state.spec",
    "Param": "riverlock.program.params",
    "Process": "riverlock.program.process",
    "Reducing": "riverlock.state.spec",
    "Replay": "riverlock.replay.report",
    "RiverlockError": "riverlock.core.errors",
    "RunKeywords": "riverlock.driver.run_options",
    "SideOutput": "riverlock.program.process",
    "Status": "riverlock.snapshot.format.run_status",
    "Stream": "riverlock.flow.stream",
    "TwoInputProcess": "riverlock.program.two_inputs",
    "Value": "riverlock.state.spec",
    "WindowedStream": "riverlock.flow.windowed",
    "at_watermark": "riverlock.program.triggers",
    "count_windows": "riverlock.program.windows",
    "days": "riverlock.core.times",
    "early": "riverlock.program.triggers",
    "global_window": "riverlock.program.windows",
    "hours": "riverlock.core.times",
    "milliseconds": "riverlock.core.times",
    "minutes": "riverlock.core.times",
    "pattern": "riverlock.program.pattern",
    "seconds": "riverlock.core.times",
    "sessions": "riverlock.program.windows",
    "sliding": "riverlock.program.windows",
    "tumbling": "riverlock.program.windows",
}
_MODULES = {
    "errors": "riverlock.core.errors",
    "sinks": "riverlock.sinks",
    "sources": "riverlock.sources",
    "stores": "riverlock.stores",
    "tables": "riverlock.tables",
    "testing": "riverlock.testing",
}

__all__ = [
    "Aggregator",
    "Bound",
    "Context",
    "Flow",
    "Graph",
    "Handle",
    "KeyedStream",
    "List",
    "Map",
    "Param",
    "Process",
    "Reducing",
    "Replay",
    "RiverlockError",
    "RunKeywords",
    "SideOutput",
    "Status",
    "Stream",
    "TwoInputProcess",
    "Value",
    "WindowedStream",
    "__version__",
    "at_watermark",
    "count_windows",
    "days",
    "early",
    "errors",
    "global_window",
    "hours",
    "milliseconds",
    "minutes",
    "open",
    "pattern",
    "seconds",
    "sessions",
    "sinks",
    "sliding",
    "sources",
    "spark_session",
    "stores",
    "tables",
    "testing",
    "tumbling",
]


def _engines() -> Engines:
    found: Any = import_module("riverlock.engines.running")
    return cast("Engines", found)


# The one call from below: flows are run by what they must not know.
answer_with(_engines)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name == "open":
        return import_module("riverlock.query.opened_store").open_store
    if name == "spark_session":
        return import_module("riverlock.spark.session").local_session
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    near = import_module("riverlock.core.suggestions").did_you_mean(name, __all__)
    message = f"module 'riverlock' has no attribute {name!r}"
    raise AttributeError(f"{message}; {near}" if near else message)


def __dir__() -> list[str]:
    return __all__
