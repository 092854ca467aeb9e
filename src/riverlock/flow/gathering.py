"""Which operator gathers the records of a window, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.flow.counted import Counted
from riverlock.flow.sessions import Sessions
from riverlock.flow.windows import CountWindows, SessionWindows

if TYPE_CHECKING:
    from riverlock.flow.contents import Content
    from riverlock.flow.operators import BuiltIn

__all__ = ["gathering"]


def gathering(
    content: Content, window: CountWindows | SessionWindows, lateness_us: int
) -> BuiltIn:
    """Return the operator for what becomes of the records of windows."""
    if isinstance(window, CountWindows):
        return Counted(content, window)
    return Sessions(content, window, lateness_us)
