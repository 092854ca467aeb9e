"""What a misspelt name may have meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a question that names the nearest of some names; empty: none is near.

    >>> did_you_mean("usr", ["user", "amount"])
    "did you mean 'user'?"
    """
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(str(name).lower(), folded, n=1)
    return f"did you mean {folded[near[0]]!r}?" if near else ""
