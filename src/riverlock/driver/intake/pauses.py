"""How long to wait before the sources are asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["pauses"]

_FIRST_SECONDS: Final = 0.005
_LONGEST_SECONDS: Final = 0.1


def pauses() -> Iterator[float]:
    """Yield seconds: what follows soon is found soon, and a quiet source left alone."""
    seconds = _FIRST_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST_SECONDS)
