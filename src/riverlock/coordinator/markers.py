"""What an epoch says of cuts and resets; written into its manifest (format §6.4)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Markers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """What an epoch says of cuts.

    Attributes:
        bears: Cuts whose markers come after the rows of the epoch.
        borne: Cuts that are still being taken and that this or an earlier epoch bears.
        heard: The last cut that was known when the epoch was planned.
        reset: The last reset that the region had taken up by then (§6.5).
    """

    bears: tuple[int, ...] = ()
    borne: tuple[int, ...] = ()
    heard: int | None = None
    reset: int = 0
