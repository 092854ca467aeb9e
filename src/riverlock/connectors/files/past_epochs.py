"""Brings an output directory to the past of the store that opens it.

A store that is put back from a backup, and a copy of a store, decide epoch numbers that
the directory already has. Epochs that are not of this store's past are moved out of
sight, never deleted; epochs of its past that another copy moved away come back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.connectors.base.committer import check_past, fenced, lacking
from riverlock.connectors.files.listing import is_withdrawal, listing_path, named
from riverlock.connectors.files.moves import Arrangement, Goal
from riverlock.connectors.files.places import WITHDRAWN, place_at
from riverlock.core.errors import StorageNotFoundError
from riverlock.core.values.known_types import known
from riverlock.snapshot.past import Claim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.files.places import Listed, Place
    from riverlock.storage.base import Storage

__all__ = ["check_claim", "check_kept", "check_listed", "is_others", "take"]

log = logging.getLogger(__name__)
_CLAIM = "_riverlock/run.json"


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """``_riverlock/run.json``: the run that has opened the directory last."""

    run: int
    token: str
    # Not before all epochs were compared with the past of that run's store.
    is_settled: bool = False

    @property
    def claim(self) -> Claim:
        return Claim(run=self.run, token=self.token)


def check_kept(path: str, owner: Owner) -> None:
    """Check that a directory still has what it received; change nothing.

    Raises:
        CommitRejectedError: It lacks epochs: it was put back from a backup, or is gone.
    """
    output = owner.past.output(owner.sink)
    if output is None or output.before is None or output.place != path:
        return
    place, given = place_at(path), output.before
    if place.storage.exists(listing_path(given)):
        return
    # A restore, or another copy of the store, may have moved it: it comes back.
    if not any(given in place.listed(home) for home in place.homes()):
        check_listed(path, given, owner)


def check_listed(path: str, given: int, owner: Owner) -> None:
    """Check that a directory has an epoch that it was given.

    Raises:
        CommitRejectedError: It lacks epochs: it was put back from a backup, or is gone.
    """
    place = place_at(path)
    if place.storage.exists(listing_path(given)):
        return
    has = max((e for e in place.listed() if e < given), default=None)
    go_on = f"create the file {path}/{listing_path(given)}"
    raise lacking(owner, has, given, path, go_on)


def take(path: str, owner: Owner) -> None:
    """Take an output directory for a run, and bring into sight what is of its past.

    Raises:
        FencedError: A newer run of this store has it.
        ForeignEpochError: It is unclear which of two epochs belongs to this store.
    """
    place = place_at(path)
    found = _read(place.storage)
    check_past(owner, None if found is None else found.claim, None, path)
    if owner.past.newest is not None and not _is_known(place, found, owner):
        # Whoever opens it next, should we die, compares all epochs, too.
        _write(place.storage, owner, is_settled=False)
        _compare(place, owner, path)
        check_claim(place.storage, owner)
    _write(place.storage, owner, is_settled=True)


def _is_known(place: Place, found: _Record | None, owner: Owner) -> bool:
    """Tell whether nothing can be in sight but what the store has decided.

    Runs of this store have left nothing else up to the epoch that they reached.
    """
    if found is None or not found.is_settled or not owner.past.has_run(found.claim):
        return False
    last = owner.past.reached(found.run)
    return last is not None and not (
        place.listed(after=last) or place.folders(after=last)
    )


def is_others(storage: Storage, owner: Owner) -> bool:
    """Tell whether the run that has a directory is newer, or of another copy."""
    found = _read(storage)
    return found is not None and (
        found.run > owner.run or not owner.past.has_run(found.claim)
    )


def check_claim(storage: Storage, owner: Owner) -> None:
    """Check that no other run has taken the directory since.

    Raises:
        FencedError: One has.
    """
    found = _read(storage)
    if found is not None and not found.claim.matches(owner.claim):
        raise fenced(owner, found.claim)


def _compare(place: Place, owner: Owner, path: str) -> None:
    past, sink, newest = owner.past, owner.sink, owner.past.newest
    assert newest is not None

    def goal(listed: Listed) -> Goal:
        if not past.has(listed.commit, sink):
            return Goal.HIDDEN
        if not listed.commit.run:
            return Goal.LEFT  # it cannot be proven
        return Goal.SHOWN if past.leads_here(listed.epoch) else Goal.UNDONE

    moves = Arrangement(
        place,
        goal,
        pending=lambda epoch: _pending(owner, epoch),
        check=lambda: check_claim(place.storage, owner),
        frees=lambda epoch: epoch > newest or past.leads_here(epoch),
        sink=sink,
    )
    moves.carry_out()
    if gone := moves.hidden | moves.put_away:
        log.warning(
            "sink %s: %s has epochs that this store has not decided, or has undone: %s;"
            " the store was put back from a backup, or a copy of it has written there;"
            " they are moved to %s/%s, and what is read again is written again",
            sink,
            path,
            _words(gone),
            path,
            WITHDRAWN,
        )
    if moves.shown:
        log.warning(
            "sink %s: %s has epochs of this store in %s, where another copy of it has"
            " moved them: %s; they are put back",
            sink,
            path,
            WITHDRAWN,
            _words(moves.shown),
        )


def _pending(owner: Owner, epoch: int) -> set[str]:
    """Return the files of the newest epoch, which will be committed once more."""
    output = owner.past.output(owner.sink)
    if epoch != owner.past.newest or output is None or is_withdrawal(output.tokens):
        return set()
    return set(named(output.tokens))


def _words(epochs: Iterable[int]) -> str:
    known = sorted(epochs)
    if len(known) == 1:
        return str(known[0])
    return f"{len(known)} from {known[0]} to {known[-1]}"


def _read(storage: Storage) -> _Record | None:
    try:
        return msgspec.json.decode(storage.get(_CLAIM), type=known(_Record))
    except StorageNotFoundError:
        return None


def _write(storage: Storage, owner: Owner, *, is_settled: bool) -> None:
    record: Any = _Record(run=owner.run, token=owner.token, is_settled=is_settled)
    storage.put(_CLAIM, msgspec.json.encode(record))
