"""Triggers: when a window emits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError
from riverlock.core.keywords import told_keywords
from riverlock.core.times import duration_us

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Trigger", "at_watermark", "early"]


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """At the watermark and for late records, and possibly earlier; see ``early``."""

    count: int | None = None
    every_us: int | None = None

    @property
    def is_early(self) -> bool:
        """Whether a window emits before it is over."""
        return self.count is not None or self.every_us is not None


@told_keywords
def at_watermark() -> Trigger:
    """Let a window emit when the watermark passes its end, as without a trigger."""
    return Trigger()


@told_keywords
def early(*, count: int | None = None, every: str | timedelta | None = None) -> Trigger:
    """Let a window emit before it is over: ``early(count=1000, every="10 seconds")``.

    Args:
        count: After this many records since it last emitted.
        every: This long after the first of these, by the clock: in the first epoch in
            which that much time has passed.

    Raises:
        InvalidConfigError: There is neither, or one is not more than zero.
    """
    if count is not None and (type(count) is not int or count < 1):
        raise InvalidConfigError(
            "early(count=)", expected="a whole number of at least 1", found=repr(count)
        )
    every_us = None if every is None else duration_us(every)
    if every_us == 0 or (count is None and every_us is None):
        raise InvalidConfigError(
            "early()",
            expected="count=, every= or both, more than 0",
            found="nothing" if every is None else repr(every),
        )
    return Trigger(count=count, every_us=every_us)
