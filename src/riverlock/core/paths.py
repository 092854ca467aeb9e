"""Paths that mean something else in another working directory."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["last_directory"]


def last_directory(given: str, meant: str) -> str | None:
    """Return the working directory in which a path had a meaning.

    >>> last_directory("in/new", "/srv/shop/in/new"), last_directory("/in", "/srv/in")
    ('/srv/shop', None)

    Args:
        given: The path as it was written.
        meant: The absolute path that it stood for.

    Returns:
        None if it is absolute, or if it was another path then.
    """
    if (
        not given
        or Path(given).is_absolute()
        or given.startswith("~")
        or "://" in given
    ):
        return None
    tail = os.path.normpath(given)
    if tail == ".":
        return meant
    if tail.startswith("..") or not meant.endswith(os.sep + tail):
        return None
    return meant[: -len(tail) - 1] or os.sep
