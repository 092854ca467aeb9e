"""Which epochs led to a manifest: after a restore, some that are there did not.

``history`` (format §4.3) tells it, also of epochs that have been deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from riverlock.core.guarantees import AT_MOST_ONCE

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import Manifest

__all__ = [
    "FORGOTTEN",
    "UNDONE",
    "Led",
    "Span",
    "decider",
    "deciders",
    "given",
    "is_restored",
    "joined",
    "restored_history",
    "spans",
    "without",
]

# The token of epochs that a restore has undone: no run has it.
UNDONE = "-"
# The token of epochs of several runs, of which it is forgotten which decided which.
FORGOTTEN = ""
# Above this, runs are joined; a copy of state that is older is made anew.
_HISTORY = 32

Span = tuple[int, int]  # both inclusive


class Led(Protocol):
    """What knows which epochs led to it: a manifest, or what is left of one."""

    @property
    def epoch(self) -> int:
        """Its number."""
        ...

    @property
    def history(self) -> tuple[tuple[int, str], ...]:
        """As in its manifest."""
        ...


def is_restored(manifest: Manifest) -> bool:
    """Tell whether an epoch was made by going back."""
    return manifest.parent is not None and manifest.parent < manifest.epoch - 1


def given(manifest: Manifest, sink: str) -> int | None:
    """Return the newest epoch that a sink has once a manifest is committed.

    None: it is not known, or there is none.
    """
    output = manifest.outputs.get(sink)
    if output is None or manifest.guarantee == AT_MOST_ONCE:
        return None
    has_rows = bool(output.tokens or output.replaces)
    # A restored epoch orders, at most, that output is taken out of sight.
    return manifest.epoch if has_rows and not is_restored(manifest) else output.before


def spans(manifest: Led) -> list[Span]:
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


def decider(manifest: Led) -> str:
    """Return the token of the run that decided an epoch; empty: it is not known."""
    return manifest.history[-1][1] if manifest.history else ""


def deciders(manifest: Led, epoch: int) -> set[str] | None:
    """Return the tokens of runs that may have decided an epoch that led to a manifest.

    None if that is forgotten, or if it was undone.
    """
    found: list[str] = []
    for first, token in manifest.history:
        if first < epoch:
            found = [token]
        elif first == epoch:  # also of a run that only rewrote the state of this epoch
            found.append(token)
    is_known = found and not {UNDONE, FORGOTTEN} & {found[0], found[-1]}
    return set(found) if is_known and epoch <= manifest.epoch else None


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
    return joined((*before, (target.epoch + 1, UNDONE), (epoch, token)))


def joined(history: tuple[tuple[int, str], ...]) -> tuple[tuple[int, str], ...]:
    """Return a history that is short: the oldest runs of it are joined.

    What a restore has undone is never forgotten: sinks would count it again.
    """
    left, place = list(history), 0
    while len(left) > _HISTORY and place + 2 < len(left):
        (first, token), (_, following) = left[place : place + 2]
        if UNDONE in (token, following):
            place += 1
        else:
            left[place : place + 2] = [(first, FORGOTTEN)]
    return tuple(left)
