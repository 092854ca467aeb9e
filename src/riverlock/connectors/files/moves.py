"""Brings the epochs of an output directory to where they belong, one by one.

Nothing is planned ahead or remembered: what to do follows from the listings that exist,
in sight or not, so that a crash at any point only leaves less to do.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.connectors.files.listing import listing, listing_path
from riverlock.connectors.files.places import IN_SIGHT
from riverlock.core.errors import ForeignEpochError

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.connectors.files.places import Listed, Place

__all__ = ["Arrangement", "Goal", "block"]


class Goal(enum.Enum):
    """Where an epoch belongs."""

    SHOWN = "in sight"
    HIDDEN = "out of sight"
    LEFT = "where it is"
    # Its store has withdrawn it, or has kept it in sight.
    UNDONE = "out of sight, if its home remembers it"


@dataclass
class Arrangement:
    """Moves the epochs of a place.

    Attributes:
        place: The output directory.
        goal: Where an epoch belongs.
        concerns: Which epoch numbers to examine.
        pending: For an epoch, the files that an interrupted commit may have left.
        frees: Which numbers are no longer blocked, if a restore has blocked them.
        check: Called before each group of moves.
        sink: For people.
    """

    place: Place
    goal: Callable[[Listed], Goal]
    concerns: Callable[[int], bool] = lambda _: True
    pending: Callable[[int], set[str]] = lambda _: set()
    frees: Callable[[int], bool] = lambda _: False
    check: Callable[[], None] = lambda: None
    sink: str = "files"
    # What was moved.
    hidden: set[int] = field(default_factory=set)
    shown: set[int] = field(default_factory=set)
    put_away: set[int] = field(default_factory=set)
    _in_sight: dict[int, Listed] = field(default_factory=dict)
    _homes: dict[str, dict[int, Listed]] = field(default_factory=dict)

    def carry_out(self) -> None:
        """Move everything that is not where it belongs.

        Raises:
            ForeignEpochError: Two epochs of one number belong in sight.
        """
        self._in_sight = self._listings(IN_SIGHT)
        self._homes = {home: self._listings(home) for home in self.place.homes()}
        to_show = self._to_show()
        self._hide()
        self._put_away(to_show)
        for home, epochs in to_show.items():
            self._show(home, epochs)

    def _listings(self, folder: str) -> dict[int, Listed]:
        epochs = sorted(e for e in self.place.listed(folder) if self.concerns(e))
        listed = (self.place.listing(epoch, folder) for epoch in epochs)
        found = {each.epoch: each for each in listed if each is not None}
        for epoch in [e for e, each in found.items() if each.is_blocked]:
            del found[epoch]
            if self.frees(epoch):
                self.place.storage.delete(listing_path(epoch))
        return found

    def _goal(self, each: Listed) -> Goal:
        goal = self.goal(each)
        if goal is not Goal.UNDONE:
            return goal
        is_remembered = self._homes.get(each.home, {}).get(each.epoch) == each
        return Goal.HIDDEN if is_remembered else Goal.LEFT

    def _hide(self) -> None:
        chosen = [x for x in self._in_sight.values() if self._goal(x) is Goal.HIDDEN]
        partly = self.place.folders()
        for epochs in self._homes.values():
            chosen += [
                x
                for x in epochs.values()
                if x.epoch in partly
                and self._in_sight.get(x.epoch) != x
                and self._goal(x) is Goal.HIDDEN
                and self.place.has_part(x)
            ]
        for home in sorted({x.home for x in chosen}):
            self.check()
            self.place.hide(home, [x for x in chosen if x.home == home])
        for each in chosen:
            if self._in_sight.get(each.epoch) == each:
                del self._in_sight[each.epoch]
            self.hidden.add(each.epoch)

    def _to_show(self) -> dict[str, list[Listed]]:
        """Return what belongs in sight and is missing there, whole, by its home."""
        found: dict[str, list[Listed]] = {}
        for home, epochs in self._homes.items():
            at_home = self.place.folders(home)
            lying = {e: x for e, x in self._in_sight.items() if x.home == home}
            for epoch, each in sorted((epochs | lying).items()):
                goal = self._goal(each)
                is_here = self._in_sight.get(epoch) == each
                # A listing in sight whose folder is at home: a move was cut off.
                is_left = is_here and goal is Goal.LEFT
                is_whole = is_here and epoch not in at_home
                if (goal is Goal.SHOWN or is_left) and not is_whole:
                    found.setdefault(home, []).append(each)
        return found

    def _put_away(self, to_show: dict[str, list[Listed]]) -> None:
        """Move files out of sight that no listing in sight names: nobody may see them.

        A commit was interrupted, and its run, of another copy of the store, still has
        them where it staged them.
        """
        strays: dict[int, set[str]] = {}
        returning = {x.epoch: x.names for xs in to_show.values() for x in xs}
        for epoch in sorted(self.place.folders() - set(self._in_sight)):
            if not self.concerns(epoch):
                continue
            names = self.place.names(epoch)
            known = self.pending(epoch) | returning.get(epoch, set())
            if not names <= known:
                strays[epoch] = names - known
        if strays:
            self.check()
            self.place.put_away(strays)
            self.put_away |= set(strays)

    def _show(self, home: str, epochs: list[Listed]) -> None:
        for each in epochs:
            if self._in_sight.setdefault(each.epoch, each) != each:
                raise ForeignEpochError(
                    self.sink,
                    place=self.place.storage.uri,
                    epoch=each.epoch,
                    newest=None,
                )
        self.check()
        self.place.show(home, epochs)
        self.shown |= {each.epoch for each in epochs}


def block(place: Place, epoch: int) -> bool:
    """Put an empty listing in place of an epoch's; False if it is listed.

    In an object store, a run that slept in its commit of a withdrawn epoch can then no
    longer list it: the place is taken.
    """
    empty = listing(epoch, ())
    path = listing_path(epoch)
    storage = place.storage
    return storage.put_if_absent(path, empty) or storage.get(path) == empty
