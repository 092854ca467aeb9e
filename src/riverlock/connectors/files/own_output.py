"""Input that a flow would write itself: store or output in a folder that it reads."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_apart"]


def check_apart(read: Mapping[str, str], written: Mapping[str, str]) -> None:
    """Refuse a flow that would read what it writes.

    Args:
        read: Paths or patterns of files by source.
        written: What the flow writes to, in words, with absolute paths.

    Raises:
        InvalidFlowError: It would, as more input without end.
    """
    for source, pattern in read.items():
        for what, path in written.items():
            if _is_read(path, pattern):
                raise InvalidFlowError(
                    f"source {source!r}",
                    expected="files that others write",
                    found=f"{pattern}, where the flow has {what} ({path}): it would"
                    " read what it writes",
                    hint=f"nothing was changed; put {what} outside of {pattern}, or"
                    " into a folder whose name begins with '_'",
                )


def _is_read(path: str, pattern: str) -> bool:
    """Tell whether files at or below a path are read.

    >>> _is_read("/a/out", "/a"), _is_read("/a/out", "/a/i*"), _is_read("/a/_o/x", "/a")
    (True, False, False)
    """
    wanted, parts = Path(pattern).parts, Path(path).parts
    if len(parts) < len(wanted):
        return False
    is_below = all(
        part == one or fnmatchcase(part, one)
        for one, part in zip(wanted, parts, strict=False)
    )
    rest = parts[len(wanted) :]
    return is_below and not any(part.startswith((".", "_")) for part in rest)
