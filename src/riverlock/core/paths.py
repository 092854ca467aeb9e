"""Paths that mean something else in another working directory."""

from __future__ import annotations

import os
from pathlib import Path

from riverlock.core.errors import InvalidConfigError

__all__ = ["check_meant", "last_directory"]


def check_meant(
    what: str, given: str, path: str, meant: str, *, is_written: bool
) -> None:
    """Refuse a path that meant another place when the flow last ran.

    Not if that was moved: what it meant is gone, and is here.

    Args:
        what: Whose path it is, for people.
        given: The path as it was written.
        path: The absolute path that it stands for.
        meant: The absolute path that it stood for.
        is_written: Whether something of its kind is at the path.

    Raises:
        InvalidConfigError: The flow was started in another working directory.
    """
    begun = last_directory(given, meant)
    if begun is None or path == meant:
        return
    if is_written and not Path(meant).exists():
        return
    raise InvalidConfigError(
        f"path {given!r} of {what}",
        expected=f"{meant}, as when the flow last ran, in {begun}",
        found=f"{path}, which is another place",
        hint=f"nothing was changed; start it in {begun}, or write the whole path",
    )


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
    if not meant.endswith(os.sep + tail):
        return None
    return meant[: -len(tail) - 1] or os.sep
