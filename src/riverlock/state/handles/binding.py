"""Which handle serves a declared variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.state.spec import Reducing

if TYPE_CHECKING:
    from riverlock.state.spec import StateSpec
    from riverlock.state.visit import Handle, Visit

from riverlock.state.handles.lists import ListHandle
from riverlock.state.handles.maps import MapHandle
from riverlock.state.handles.values import ValueHandle

__all__ = ["bind"]


def bind(spec: StateSpec, visit: Visit) -> Handle:
    """Return the handle that serves a variable stored in entries of its own."""
    match spec.kind:
        case "list":
            return ListHandle(spec, visit)
        case "map":
            return MapHandle(spec, visit)
        case _:
            assert spec.kind == "value" or isinstance(spec, Reducing)
            return ValueHandle(spec, visit)
