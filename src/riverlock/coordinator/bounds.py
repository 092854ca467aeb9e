"""How far the reader of a channel may fall behind before its writer waits.

A region that is held back reads nothing: neither sources nor channels. It still bears
markers and tells of time, by epochs without input, so that snapshots go on: whoever has
not borne a marker is held back only by readers that have not borne it either, and
channels without back edges lead to a region that nothing holds back. A back edge has no
bound: its writer would wait for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from riverlock.core.errors import InvalidConfigError
from riverlock.core.times import duration_text, duration_us

if TYPE_CHECKING:
    from datetime import timedelta

    from riverlock.snapshot.backlog import Unread

__all__ = ["Bound", "Hold", "hold"]

_LIMITS: Final = ("rows", "bytes")


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How far a region may fall behind what it reads of another: ``rl.Bound(...)``.

    The writer waits while any of these is reached. What an epoch writes is not known
    before, so a channel may hold more than the bound by one epoch of its writer.

    Attributes:
        rows: Rows that were not read.
        bytes: Bytes of the files that have them.
        age: How long ago the oldest of them were decided.
    """

    rows: int | None = None
    bytes: int | None = None
    age: str | timedelta | None = None

    def __post_init__(self) -> None:
        """Refuse a bound that bounds nothing, or lets nothing through.

        Raises:
            InvalidConfigError: It is such a one.
        """
        if self.rows is None and self.bytes is None and self.age is None:
            raise InvalidConfigError(
                "rl.Bound()", expected="rows=, bytes= or age=", found="none of them"
            )
        for name in _LIMITS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidConfigError(
                    f"rl.Bound({name}=)", expected="at least 1", found=str(value)
                )
        if self.age_us is not None and self.age_us < 1:
            raise InvalidConfigError(
                "rl.Bound(age=)", expected="more than nothing", found=str(self.age)
            )

    @property
    def age_us(self) -> int | None:
        """The age in microseconds."""
        return None if self.age is None else duration_us(self.age)

    def __str__(self) -> str:
        """Return it as people read it."""
        parts = [f"{self.rows:,} rows"] if self.rows is not None else []
        parts += [f"{self.bytes:,} bytes"] if self.bytes is not None else []
        parts += [duration_text(self.age_us)] if self.age_us is not None else []
        return " or ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Who waits for whom: a writer for the reader of a channel.

    Attributes:
        channel: The channel.
        reader: The region that is behind.
        why: How far, and the bound, in words.
    """

    channel: str
    reader: str
    why: str

    def __str__(self) -> str:
        """Return it as people read it."""
        return f"region {self.reader!r} to read channel {self.channel!r}: {self.why}"


def hold(bound: Bound, waits: Unread, now_us: int) -> str | None:
    """Return why a writer must wait; None: it need not."""
    if bound.rows is not None and waits.rows >= bound.rows:
        return f"{waits.rows:,} rows wait, at most {bound.rows:,} may"
    if bound.bytes is not None and waits.bytes >= bound.bytes:
        return f"{waits.bytes:,} bytes wait, at most {bound.bytes:,} may"
    age_us = waits.age_us(now_us)
    if bound.age_us is not None and age_us >= bound.age_us:
        return (
            f"its oldest rows wait for {duration_text(age_us // 1_000_000 * 1_000_000)}"
            f", at most {duration_text(bound.age_us)} are allowed"
        )
    return None
