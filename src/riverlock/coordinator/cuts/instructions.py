"""What the shell is to do for cuts: a put-if-absent each, which may be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from riverlock.coordinator.cuts.cut import CompleteCut

__all__ = ["Abandon", "Complete", "DeclareDrained", "Instruction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareDrained:
    """Tell the regions that all channels are empty, so that heads bear the marker."""

    cut: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """Decide the snapshot."""

    cut: CompleteCut


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """Decide that there is no such snapshot; nobody waits for it any more.

    Attributes:
        waiting: The regions that have not borne its marker.
    """

    cut: int
    waiting: tuple[str, ...]


Instruction: TypeAlias = DeclareDrained | Complete | Abandon
