"""Which epochs led to a manifest: after a restore, some that are there did not.

``history`` (format §4.3) tells it, also of epochs that have been deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riverlock.snapshot.records import Manifest

__all__ = [
    "UNDONE",
    "Span",
    "given",
    "is_restored",
    "restored_history",
    "spans",
    "without",
]

# The token of epochs that a restore has undone: no run has it.
UNDONE = "-"
_HISTORY = 32

Span = tuple[int, int]  # both inclusive


def is_restored(manifest: Manifest) -> bool:
    """Tell whether an epoch was made by going back."""
    return manifest.parent is not None and manifest.parent < manifest.epoch - 1


def given(manifest: Manifest, sink: str) -> int | None:
    """Return the newest epoch that a sink has once a manifest is committed.

    None: it is not known, or there is none.
    """
    output = manifest.outputs.get(sink)
    if output is None:
        return None
    has_rows = bool(output.tokens or output.replaces)
    # A restored epoch orders, at most, that output is taken out of sight.
    return manifest.epoch if has_rows and not is_restored(manifest) else output.before


def spans(manifest: Manifest) -> list[Span]:
    """Return the epochs that led to a manifest, it included, oldest first."""
    history = manifest.history or ((0, ""),)
    ends = [first - 1 for first, _ in history[1:]] + [manifest.epoch]
    found = [
        (first, end)
        for (first, token), end in zip(history, ends, strict=True)
        if token != UNDONE and first <= end
    ]
    first = history[0][0]
    # What the history has forgotten is taken to be one line.
    return [(0, first - 1), *found] if first > 0 else found


def without(ours: list[Span], theirs: list[Span]) -> list[Span]:
    """Return the epochs of the first spans that are not in the second, joined."""
    left = ours
    for first, end in theirs:
        left = [
            part
            for a, b in left
            for part in ((a, min(b, first - 1)), (max(a, end + 1), b))
            if part[0] <= part[1]
        ]
    joined: list[Span] = []
    for a, b in sorted(set(left)):
        if joined and a <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(b, joined[-1][1]))
        else:
            joined.append((a, b))
    return joined


def restored_history(
    target: Manifest, *, epoch: int, token: str
) -> tuple[tuple[int, str], ...]:
    """Return the history of an epoch that goes back to a target.

    Working copies of state compare tokens: none of those that are undone may match.
    """
    before = target.history or ((0, ""),)
    return (*before, (target.epoch + 1, UNDONE), (epoch, token))[-_HISTORY:]
