"""How far inputs have come in event time: which are idle, which hold time back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.times import END_US
from riverlock.snapshot.format.records import Record

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import Manifest, PartitionTime, Watermark

__all__ = ["InputTime", "input_times"]


class InputTime(Record, frozen=True, kw_only=True):
    """One ``event_time`` declaration, as ``status`` shows it.

    Attributes:
        uid: The declaration.
        watermark_us: What it has reached.
        active_us: Processing time of its last rows.
        idle_since_us: Since when it has had no rows, if long enough that it no longer
            holds time back.
        holds_back: Whether others wait for it.
        idle_after_us: How long others wait for it without rows; None: for ever.
        delay_us: How late its rows may come; None if that was not recorded.
        per: The column that tells its partitions apart.
        is_marked: Whether only some of its rows move the watermark.
        partitions: How many are known, if it is declared ``per`` partition.
        idle_partitions: Those of them that do not count at present.
        slowest_partition: The one that holds the others back.
    """

    uid: str
    watermark_us: int | None = None
    active_us: int | None = None
    idle_since_us: int | None = None
    holds_back: bool = False
    idle_after_us: int | None = None
    delay_us: int | None = None
    per: str | None = None
    is_marked: bool = False
    partitions: int = 0
    idle_partitions: tuple[str, ...] = ()
    slowest_partition: str | None = None


def input_times(
    manifest: Manifest, *, now_us: int, since_us: int
) -> tuple[InputTime, ...]:
    """Return how far the inputs of an epoch have come, seen from a later instant.

    Args:
        manifest: The newest epoch.
        now_us: Processing time.
        since_us: When the run began: an input without any rows is idle from then on.
    """
    marks = manifest.watermarks
    idle = {uid: _idle_since(m, now_us, since_us) for uid, m in marks.items()}
    awake = {
        uid: _place(m.watermark_us)
        for uid, m in marks.items()
        if idle[uid] is None and m.watermark_us != END_US
    }
    # Of inputs that are equally far, none waits for another.
    last = min(awake.values(), default=None)
    is_apart = len(set(awake.values())) > 1
    return tuple(
        InputTime(
            uid=uid,
            watermark_us=mark.watermark_us,
            active_us=mark.active_us,
            idle_since_us=idle[uid],
            holds_back=is_apart and awake.get(uid) == last,
            idle_after_us=mark.idle_after_us,
            delay_us=mark.delay_us,
            per=mark.per,
            is_marked=mark.is_marked,
            **_partitions(mark, now_us),
        )
        for uid, mark in marks.items()
    )


def _idle_since(mark: Watermark, now_us: int, since_us: int) -> int | None:
    if mark.idle_after_us is None or mark.watermark_us == END_US:
        return None
    active = since_us if mark.active_us is None else mark.active_us
    return active if now_us - active > mark.idle_after_us else None


def _place(watermark_us: int | None) -> tuple[bool, int]:
    """Return a sort key for watermarks: an input without time is behind all others."""
    return watermark_us is not None, watermark_us or 0


def _partitions(mark: Watermark, now_us: int) -> dict[str, Any]:
    if not mark.partitions:
        return {}

    def is_idle(part: PartitionTime) -> bool:
        if mark.idle_after_us is None or part.active_us is None:
            return False
        return now_us - part.active_us > mark.idle_after_us

    awake = {n: p for n, p in mark.partitions.items() if not is_idle(p)}
    places = {n: _place(p.max_time_us) for n, p in awake.items()}
    is_apart = len(set(places.values())) > 1
    return {
        "partitions": len(mark.partitions),
        "idle_partitions": tuple(n for n in mark.partitions if n not in awake),
        "slowest_partition": min(places, key=places.__getitem__) if is_apart else None,
    }
