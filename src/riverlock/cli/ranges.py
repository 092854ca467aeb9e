"""Positions of sources in a few words: ``40 files, newest 0040.json``.

A position is the source's own JSON, and may name thousands of files. What is not known
by its form is shown as it is, cut; ``--full`` shows all of it.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.cli import text

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["brief_range", "position", "span"]

# A table has no room for more; ``riverlock explain --full`` has all of it.
_MAX = 3
_MOST_CHARACTERS = 100


def brief_range(start: Any, end: Any) -> str:
    """Return where a source's offset was and where it came to; empty: nowhere.

    >>> brief_range({"row": 50, "origin": 7}, {"row": 100, "origin": 7})
    '50 to 100'
    >>> brief_range({"partitions": {"t-0": 5}}, {"partitions": {"t-0": 9, "t-1": 2}})
    't-0 5 to 9, t-1 0 to 2'
    """
    before, after = dict(_leaves(start)), dict(_leaves(end))
    changed = {
        name: (before.get(name), value)
        for name, value in after.items()
        if before.get(name) != value
    }
    # Paths and checksums change along with numbers, and say less.
    counts = {
        name: (old or 0, new)
        for name, (old, new) in changed.items()
        if isinstance(new, int) and isinstance(old, int | None)
    }
    shown = [
        (f"{name} " if len(counts or changed) > 1 else "") + f"{old} to {new}"
        for name, (old, new) in (counts or changed).items()
    ]
    more = f" and {len(shown) - _MAX} more" if len(shown) > _MAX else ""
    return ", ".join(shown[:_MAX]) + more


def position(offset: Any, *, full: bool = False) -> str:
    """Return a position as short text; as its whole JSON if that is wanted.

    >>> position({"count": 2, "base": None, "recent": [["/in/a", 5], ["/in/b", 5]]})
    '2 files, newest b'
    >>> position({"row": 5000, "origin": 7})
    'row 5,000'
    """
    whole = msgspec.json.encode(offset).decode()
    if full:
        return whole
    match offset:
        case {"count": int(count), "recent": list(recent)}:
            return _files(count, recent)
        case {"partitions": dict(partitions)}:
            return _partitions(partitions)
        case {"row": int(row)}:
            return f"row {text.count(row)}"
        case {"channel": str(channel), "segment": int(segment)}:
            return f"{text.counted(segment, 'segment')} of channel {channel}"
        case {"value": value, "rows": int(rows)}:
            return f"{text.counted(rows, 'row')}, up to {text.value(value)}"
        case _:
            pass
    if len(whole) <= _MOST_CHARACTERS:
        return whole
    return f"{whole[: _MOST_CHARACTERS - 1]}…"


def span(start: Any, end: Any, rows: int | None, *, full: bool = False) -> str:
    """Return what an epoch read of a source.

    >>> a, b = ["/in/a", 5], ["/in/b", 5]
    >>> span({"count": 1, "recent": [a]}, {"count": 2, "recent": [a, b]}, 7)
    '1 file, newest b, 7 records'
    """
    if start == end:
        return f"nothing new after {position(end, full=full)}"
    counted = "" if rows is None else f", {text.counted(rows, 'record')}"
    match start, end:
        case {"count": int(before)}, {"count": int(after), "recent": recent} if (
            not full
        ):
            return f"{_files(after - before, recent)}{counted}"
    return f"{position(start, full=full)} to {position(end, full=full)}{counted}"


def _files(count: int, recent: list[Any]) -> str:
    said = text.counted(count, "file")
    if not count or not recent:
        return said
    return f"{said}, newest {PurePath(str(recent[-1][0])).name}"


def _partitions(partitions: dict[str, int]) -> str:
    if len(partitions) <= _MAX:
        each = (f"{name} at {text.count(at)}" for name, at in partitions.items())
        return ", ".join(each) or "no partitions"
    total = sum(partitions.values())
    said = text.counted(len(partitions), "partition")
    return f"{said}, at {text.count(total)} records in all"


def _leaves(offset: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the plain values of an offset, each by its own name."""
    if isinstance(offset, dict):
        for inner, value in offset.items():
            yield from _leaves(value, inner)
    elif not isinstance(offset, list):
        yield name, offset
