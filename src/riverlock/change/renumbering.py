"""Which uids that nobody has given stand for something else than before: a report.

They follow the order of the code. Where operators, sources, event times or sinks have
changed places, each would continue with the state, the offsets or the output of
another; a start refuses that. Code may change: one that is more like what its uid stood
for than any other is the same. A uid that the code gives is the word of the user, and
is not looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError
from riverlock.snapshot.format.records import TimerHeads

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from riverlock.snapshot.format.records import Manifest, Meaning

__all__ = ["Renumbering", "described", "plan_renumbering", "written"]

_NOUNS = {"event_time": "event time"}
# They are what they are by their place.
_PLACED = ("source", "sink")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A generated uid that stands for something else.

    Attributes:
        uid: The uid.
        was: What it stood for.
        now: What it stands for in the code.
        name: The uid to give in the code to keep it: another one made it.
        before: The uid that this had, if it was there.
        after: The uid that the code makes for what it was, if that is still there.
    """

    uid: str
    was: Meaning
    now: Meaning
    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """Say what was taken for what."""
        now = described(self.now, beside=self.was)
        known = "" if self.before is None else f", which was {self.before!r}"
        return f"{self.uid!r} stands for {now}{known}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Renumbering:
    """How generated uids differ from those of an epoch."""

    epoch: int
    moved: tuple[Moved, ...]

    @property
    def has_exchanged(self) -> bool:
        """Whether some have each other's uids, or one has a uid that was another's."""
        return any(m.before is not None or m.after is not None for m in self.moved)

    @property
    def refusals(self) -> tuple[InvalidConfigError, ...]:
        """What forbids to go on."""
        if not self.moved:
            return ()
        uids = ", ".join(repr(m.uid) for m in self.moved)
        several = "s" if len(self.moved) > 1 else ""
        were = [f"{m.uid!r} for {described(m.was, beside=m.now)}" for m in self.moved]
        return (
            InvalidConfigError(
                f"generated uid{several} {uids}",
                expected=f"{', '.join(were)}, as in epoch {self.epoch}",
                found=", ".join(map(str, self.moved)),
                hint=self._hint(),
            ),
        )

    def check(self) -> None:
        """Refuse to let one continue with the state or the offsets of another.

        Raises:
            InvalidConfigError: Nothing was touched.
        """
        for error in self.refusals:
            raise error

    def _hint(self) -> str:
        kept = [m for m in self.moved if m.after is not None]
        others = [m for m in self.moved if m.after is None]
        said = [
            "nothing was changed; uids that the code does not give follow its order"
        ]
        if kept:
            each = [f"{written(m.name)} for {described(m.was)}" for m in kept]
            said.append(f"give each the uid that it had: {', '.join(each)}")
        said += [
            f"if {described(m.now)} is what {m.uid!r} was, changed, write"
            f" {written(m.name)} and it goes on from there; if it is new, give it"
            " another uid="
            for m in others
        ]
        return "; ".join(said)


def written(uid: str) -> str:
    """Return what to write in the code to keep a uid."""
    return f'uid="{uid}"'


def described(meaning: Meaning, *, beside: Meaning | None = None) -> str:
    """Say what a uid stands for; beside another, as far as they differ.

    Args:
        meaning: What it stands for.
        beside: What it is to be told from.
    """
    noun = _NOUNS.get(meaning.kind, meaning.kind)
    text = f"{noun} {meaning.what}" if meaning.what != noun else noun
    is_alike = beside is not None and (beside.kind, beside.what) == (
        meaning.kind,
        meaning.what,
    )
    if meaning.kind in _PLACED or is_alike or beside is None:
        of = "" if meaning.kind in _PLACED else "of "
        text += f" {of}{meaning.place}" if meaning.place else ""
    return text


def plan_renumbering(
    newest: Manifest, meanings: Mapping[str, Meaning], generated: Mapping[str, str]
) -> Renumbering:
    """Compare what generated uids stood for in an epoch with what they stand for.

    Args:
        newest: The epoch; if its writer did not say, nothing is known.
        meanings: What the uids of the code stand for.
        generated: Which of them nobody has given, and what to give instead.
    """
    stored = newest.meanings
    moved = []
    known = generated.keys() & stored.keys() & meanings.keys()
    for uid in sorted(known & _kept(newest)):
        was, now = stored[uid], meanings[uid]
        if not _is_same(uid, stored, meanings):
            before = next((u for u, m in stored.items() if m == now), None)
            after = next((u for u, m in meanings.items() if m == was), None)
            moved.append(
                Moved(
                    uid=uid,
                    was=was,
                    now=now,
                    name=generated[uid],
                    before=before,
                    after=after,
                )
            )
    return Renumbering(epoch=newest.epoch, moved=tuple(moved))


def _kept(newest: Manifest) -> Set[str]:
    """Return the uids that something would be gone on with."""
    operators = {
        u for u, s in newest.operators.items() if s.files or s.timers != TimerHeads()
    }
    marks = {u for u, m in newest.watermarks.items() if m.watermark_us is not None}
    return operators | newest.inputs.keys() | marks | newest.outputs.keys()


def _is_same(
    uid: str, stored: Mapping[str, Meaning], meanings: Mapping[str, Meaning]
) -> bool:
    """Tell whether a uid stands for what it stood for, as it was or changed."""
    was, now = stored[uid], meanings[uid]
    if was == now:
        return True
    if (was.kind, was.what) != (now.kind, now.what):
        return False
    # Of those that it could be taken for, some are known to be themselves.
    known = {u for u, m in stored.items() if meanings.get(u) == m}
    rivals = [
        *(_likeness(m, now) for u, m in stored.items() if _is_rival(u, uid, known)),
        *(_likeness(was, m) for u, m in meanings.items() if _is_rival(u, uid, known)),
    ]
    likeness = _likeness(was, now)
    if was.recipe != now.recipe:
        # Written by another version: what cannot be told apart is as it was.
        return all(likeness >= each for each in rivals)
    return all(likeness > each for each in rivals)


def _is_rival(other: str, uid: str, known: Set[str]) -> bool:
    """Tell whether a uid might have been made for another one."""
    return other != uid and other not in known and _stem(other) == _stem(uid)


def _likeness(one: Meaning, other: Meaning) -> int:
    """Return how much two have in common; -1 if they do other things."""
    if (one.kind, one.what) != (other.kind, other.what):
        return -1
    if one.recipe != other.recipe:
        return int(one.place == other.place)
    pairs = [(m.place, m.digest, m.way) for m in (one, other)]
    return sum(a == b for a, b in zip(*pairs, strict=True))


def _stem(uid: str) -> str:
    return re.sub(r"\d+", "#", uid)
