"""Riverlock: reliable, stateful stream processing for people who write PySpark.

The one public door. Names are loaded when first used: importing the package loads
neither PySpark nor LMDB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from riverlock._version import __version__

if TYPE_CHECKING:
    from riverlock import sinks, sources, stores, testing
    from riverlock.core.errors import RiverlockError
    from riverlock.core.times import days, hours, milliseconds, minutes, seconds
    from riverlock.flow.aggregator import Aggregator
    from riverlock.flow.connect import TwoInputProcess
    from riverlock.flow.flow import Flow
    from riverlock.flow.params import Param
    from riverlock.flow.pattern import pattern
    from riverlock.flow.process import Process, SideOutput
    from riverlock.flow.stream import KeyedStream, Stream
    from riverlock.flow.triggers import at_watermark, early
    from riverlock.flow.windowed import WindowedStream
    from riverlock.flow.windows import (
        count_windows,
        global_window,
        sessions,
        sliding,
        tumbling,
    )
    from riverlock.query.store import open_store as open
    from riverlock.runtime.context import Context
    from riverlock.spark.runner import Handle
    from riverlock.spark.session import local_session as session
    from riverlock.state.spec import List, Map, Reducing, Value

_HOMES = {
    "Aggregator": "riverlock.flow.aggregator",
    "Context": "riverlock.runtime.context",
    "Flow": "riverlock.flow.flow",
    "Handle": "riverlock.spark.runner",
    "KeyedStream": "riverlock.flow.stream",
    "List": "riverlock.state.spec",
    "Map": "riverlock.state.spec",
    "Param": "riverlock.flow.params",
    "Process": "riverlock.flow.process",
    "Reducing": "riverlock.state.spec",
    "RiverlockError": "riverlock.core.errors",
    "SideOutput": "riverlock.flow.process",
    "Stream": "riverlock.flow.stream",
    "TwoInputProcess": "riverlock.flow.connect",
    "Value": "riverlock.state.spec",
    "WindowedStream": "riverlock.flow.windowed",
    "at_watermark": "riverlock.flow.triggers",
    "count_windows": "riverlock.flow.windows",
    "days": "riverlock.core.times",
    "early": "riverlock.flow.triggers",
    "global_window": "riverlock.flow.windows",
    "hours": "riverlock.core.times",
    "milliseconds": "riverlock.core.times",
    "minutes": "riverlock.core.times",
    "pattern": "riverlock.flow.pattern",
    "seconds": "riverlock.core.times",
    "sessions": "riverlock.flow.windows",
    "sliding": "riverlock.flow.windows",
    "tumbling": "riverlock.flow.windows",
}
_MODULES = ("sinks", "sources", "stores", "testing")

__all__ = [
    "Aggregator",
    "Context",
    "Flow",
    "Handle",
    "KeyedStream",
    "List",
    "Map",
    "Param",
    "Process",
    "Reducing",
    "RiverlockError",
    "SideOutput",
    "Stream",
    "TwoInputProcess",
    "Value",
    "WindowedStream",
    "__version__",
    "at_watermark",
    "count_windows",
    "days",
    "early",
    "global_window",
    "hours",
    "milliseconds",
    "minutes",
    "open",
    "pattern",
    "seconds",
    "session",
    "sessions",
    "sinks",
    "sliding",
    "sources",
    "stores",
    "testing",
    "tumbling",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"riverlock.{name}")
    if name == "open":
        return import_module("riverlock.query.store").open_store
    if name == "session":
        return import_module("riverlock.spark.session").local_session
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    message = f"module 'riverlock' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return __all__
