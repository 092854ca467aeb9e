"""Key groups that other working copies of this machine have already.

With another parallelism a task has another range of key groups, and no copy of it. But
copies of the ranges before are here, and have most or all of these groups. What they
have is taken from there; only groups that were on other machines are read from the
store.

A neighbour is a cache that nobody may have used for long. It is taken only if it is
whole, in the present layout, at a committed version of this timeline from which files
lead on, and if no process of this run died over it. What is taken is checked entry by
entry. In every other case the store serves.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.state.copy.lmdb import LmdbStore
from riverlock.state.copy.tail import Tail
from riverlock.state.keys import BROADCAST
from riverlock.state.store import Changes, Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.state.copy.baseline import Baseline
    from riverlock.state.copy.copy_place import Spot

__all__ = ["Neighbour", "Range", "Share", "neighbours", "only", "shared_out"]

Range = tuple[int, int]


@dataclass(frozen=True)
class Neighbour:
    """A copy of another range, at a version from which files lead to the wanted one."""

    spot: Spot
    store: LmdbStore
    tail: Tail
    version: Version

    def size(self, groups: Range) -> int:
        """Return about how many entries of some of its groups it has."""
        first, end = self.spot.groups
        with self.store.read() as reader:
            return reader.size * (groups[1] - groups[0]) // (end - first)

    def entries(self, share: Share) -> Iterator[Changes]:
        """Yield what groups have at its version, as changes of an empty store.

        Raises:
            StateCorruptedError: The copy is damaged: nothing of it is to be kept.
        """
        with self.store.read() as reader:
            yield from reader.part(share.names)
        if not self.tail.is_empty:
            yield only(self.tail.changes(), share)


@dataclass(frozen=True)
class Share:
    """Groups that are taken from one place."""

    groups: Range
    # None: from the store.
    of: Neighbour | None
    # Whether broadcast entries come from there too.
    has_shared: bool

    @property
    def names(self) -> set[bytes]:
        """What the ids of their entries begin with."""
        found = {group.to_bytes(2) for group in range(*self.groups)}
        # Broadcast entries are as if of a group that no key has.
        return found | {BROADCAST[:2]} if self.has_shared else found


def only(changes: Changes, share: Share) -> Changes:
    """Return what of some changes is of the groups of a share."""
    names = share.names
    return Changes(
        {i: payload for i, payload in changes.puts.items() if i[:2] in names},
        [i for i in changes.deletes if i[:2] in names],
        [timer for timer in changes.timers if timer[1][:2] in names],
        [item for item in changes.expiries if item[8:10] in names],
    )


@contextmanager
def neighbours(
    spot: Spot, base: Baseline, wanted: Version, token: str
) -> Iterator[list[Neighbour]]:
    """Find the copies that have groups of a range, and keep them from being moved.

    Args:
        spot: The place of the range.
        base: What it is to hold.
        wanted: The version of that.
        token: Of the run.
    """
    with ExitStack() as stack:
        found = []
        for other in spot.others():
            with suppress(OSError):  # one that cannot be looked at is none
                is_resting = stack.enter_context(other.resting())
                if not is_resting or other.has_crashed(token):
                    continue
                # Should it kill us, it is not to kill the next attempt too.
                stack.enter_context(other.marked(token))
                store = LmdbStore(other.store)
                stack.callback(store.close)  # hardly anyone will ask for it again
                neighbour = _look(other, store, base.within(other.groups), wanted)
                if neighbour is not None:
                    found.append(neighbour)
        # Of the newest most is right already.
        yield sorted(found, key=lambda n: -n.version.epoch)


def _look(
    spot: Spot, store: LmdbStore, base: Baseline, wanted: Version
) -> Neighbour | None:
    have = store.peek()
    if have is None or have.schema != wanted.schema:
        return None
    tail = Tail(spot.tail)
    have = tail.follow(have, wanted.epoch, base.token)
    if base.after(have, wanted) is None:
        return None
    return Neighbour(spot, store, tail, have)


def shared_out(groups: Range, among: list[Neighbour]) -> list[Share]:
    """Say where each group of a range comes from: the first that has it.

    Broadcast entries, which every copy has, come with the first share.
    """
    free = [groups]
    found: list[tuple[Range, Neighbour | None]] = []
    for neighbour in among:
        first, end = neighbour.spot.groups
        left: list[Range] = []
        for low, high in free:
            common = max(first, low), min(end, high)
            if common[0] < common[1]:
                found.append((common, neighbour))
                left += [(low, common[0]), (common[1], high)]
            else:
                left.append((low, high))
        free = [(low, high) for low, high in left if low < high]
    found += [(piece, None) for piece in free]
    return [Share(piece, of, n == 0) for n, (piece, of) in enumerate(found)]
