"""Run-time handles of declared state: what ``self.recent`` and ``self.seen`` are.

A handle serves one variable for all keys of a task, one key at a time. It reads from
the store what is asked of it, remembers what is written, and hands the difference to
the change log when the key is done. Handles that were not touched cost nothing.
"""

from riverlock.state.handles.binding import bind
from riverlock.state.handles.lists import ListHandle
from riverlock.state.handles.maps import MapHandle
from riverlock.state.handles.values import ReducingHandle, ValueHandle
from riverlock.state.visit import Visit

__all__ = ["ListHandle", "MapHandle", "ReducingHandle", "ValueHandle", "Visit", "bind"]
