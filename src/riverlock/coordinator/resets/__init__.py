"""Pure decisions about going back with all regions while they run."""

from __future__ import annotations

from riverlock.coordinator.resets.rules import (
    GoBack,
    Order,
    Reset,
    Say,
    Standing,
    Stray,
    Writer,
    held_at,
    is_ahead,
    resumed_at,
    taken_up,
)

__all__ = [
    "GoBack",
    "Order",
    "Reset",
    "Say",
    "Standing",
    "Stray",
    "Writer",
    "held_at",
    "is_ahead",
    "resumed_at",
    "taken_up",
]
