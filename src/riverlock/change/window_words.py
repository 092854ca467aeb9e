"""Windows that have changed, in words: ``windows of 20 minutes``, were ``10 minutes``.

What must not change of a window is stored as text (format §4.1), in microseconds.
"""

from __future__ import annotations

import re

from riverlock.core.times import duration_text

__all__ = ["changed_windows"]

_NUMBER = re.compile(r"(size|slide|offset|session|lateness|count) (\d+|by record)")
_TITLES = {
    "size": "windows of {}",
    "slide": "a window every {}",
    "offset": "windows offset by {}",
    "session": "sessions that end after {}",
    "lateness": "lateness of {}",
    "count": "windows of {} records",
}


def changed_windows(declared: str | None, stored: str | None) -> tuple[str, str]:
    """Return what the code says of windows, and what was stored, where they differ.

    >>> before = "size 600000000 slide 600000000 offset 0 lateness 0"
    >>> changed_windows(before.replace("600000000", "1200000000"), before)
    ('windows of 20 minutes', '10 minutes')
    >>> changed_windows(None, before)
    ('no windows', 'windows of 10 minutes')
    """
    new, old = _parts(declared), _parts(stored)
    if new.keys() != old.keys() or _words(declared) != _words(stored):
        return _whole(declared), _whole(stored)
    names = [name for name in new if new[name] != old[name]]
    if _is_tumbling(new) and _is_tumbling(old):
        names = [name for name in names if name != "slide"]
    expected = ", ".join(_TITLES[name].format(new[name]) for name in names)
    return expected, ", ".join(old[name] for name in names)


def _parts(text: str | None) -> dict[str, str]:
    found = dict(_NUMBER.findall(text or ""))
    if "count" in found:  # of records, not of time
        return found
    return {
        name: duration_text(int(number)) if number.isdigit() else "a gap of the record"
        for name, number in found.items()
    }


def _words(text: str | None) -> str:
    """Return what is said besides numbers: triggered, functions over."""
    return _NUMBER.sub("", text or "no windows").strip()


def _is_tumbling(parts: dict[str, str]) -> bool:
    return "slide" in parts and parts["slide"] in (
        parts.get("size"),
        parts.get("count"),
    )


def _whole(text: str | None) -> str:
    if text is None:
        return "no windows"
    parts = _parts(text)
    left_out = {n for n in ("offset", "lateness") if parts.get(n) == duration_text(0)}
    if _is_tumbling(parts):
        left_out.add("slide")
    said = [_TITLES[n].format(v) for n, v in parts.items() if n not in left_out]
    return " ".join([*_words(text).split(), ", ".join(said)]).strip()
