"""Brings an output directory to the past of the store that opens it.

A store that is put back from a backup, and a copy of a store, decide epoch numbers that
the directory has already. What is there and not of this store's past is moved aside,
never deleted; what is of its past and was moved aside by another copy comes back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import StorageNotFoundError
from riverlock.sinks.committer import check_past, fenced, lacking
from riverlock.sinks.file_listing import listing_path
from riverlock.sinks.file_places import ASIDE, IN_SIGHT, place_at
from riverlock.sinks.withdrawal import WITHDRAWN
from riverlock.snapshot.past import Claim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.sinks.committer import Owner
    from riverlock.sinks.file_places import Place
    from riverlock.storage.base import Storage

__all__ = ["check_claim", "check_kept", "take"]

log = logging.getLogger(__name__)
_CLAIM = "_riverlock/run.json"


class _Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """``_riverlock/run.json``: the run that has opened the directory last."""

    run: int
    token: str
    # Not before all epochs were compared with the past of that run's store.
    is_settled: bool = False


def check_kept(path: str, owner: Owner) -> None:
    """Check that a directory still has what it was given; change nothing.

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
    if any(given in place.epochs(f) for f in (*place.folders(), WITHDRAWN)):
        return
    has = max((e for e in place.epochs() if e < given), default=None)
    go_on = f"create the file {path}/{listing_path(given)}"
    raise lacking(owner, has, given, path, go_on)


def take(path: str, owner: Owner) -> None:
    """Take an output directory for a run, and leave in sight what is of its past.

    Raises:
        FencedError: A newer run of this store has it.
    """
    place = place_at(path)
    found = _read(place.storage)
    claim = None if found is None else Claim(run=found.run, token=found.token)
    check_past(owner, claim, None, path)
    # Runs of this store have left nothing but what the store knows.
    is_ours = found is None or (found.is_settled and owner.past.has_run(_claim(found)))
    if not is_ours:
        _write(place.storage, owner, is_settled=False)
    _set_aside(place, owner, path, compares=not is_ours)
    if not is_ours:
        _bring_back(place, owner, path)
    _write(place.storage, owner, is_settled=True)


def check_claim(storage: Storage, owner: Owner) -> None:
    """Check that no other run has taken the directory since.

    Raises:
        FencedError: One has.
    """
    found = _read(storage)
    if found is not None and not _claim(found).matches(owner.claim):
        raise fenced(owner, _claim(found))


def _set_aside(place: Place, owner: Owner, path: str, *, compares: bool) -> None:
    newest = owner.past.newest
    # Sinks get an epoch after it was decided, so that its number is known.
    strange = set() if newest is None else place.epochs(after=newest)
    for epoch in place.epochs() - strange if compares else ():
        commit = place.commit(epoch)
        if commit is not None and not owner.past.has(commit, owner.sink):
            strange.add(epoch)
    if strange:
        aside = f"{ASIDE}/{owner.run:06d}-{owner.token}"
        log.warning(
            "sink %s: %s has epochs that this store has not decided: %s; the store was"
            " put back from a backup, or a copy of it has written there; they are"
            " moved to %s/%s, and what is read again is written again",
            owner.sink,
            path,
            _words(strange),
            path,
            aside,
        )
        place.move(strange, IN_SIGHT, aside)


def _bring_back(place: Place, owner: Owner, path: str) -> None:
    """Put back what is of our past and another copy of the store has moved away."""
    in_sight = place.epochs()
    for folder in (*place.folders(), WITHDRAWN):
        ours = []
        for epoch in sorted(place.epochs(folder) - in_sight):
            commit = place.commit(epoch, folder)
            # Without an identity it cannot be proven.
            is_told = commit is not None and commit.run
            if is_told and owner.past.leads_here(epoch):
                assert commit is not None
                ours += [epoch] if owner.past.has(commit, owner.sink) else []
        if ours:
            log.warning(
                "sink %s: %s has epochs of this store in %s, where another copy of it"
                " has moved them: %s; they are put back",
                owner.sink,
                path,
                folder,
                _words(ours),
            )
            place.move(ours, folder, IN_SIGHT)
            in_sight |= set(ours)


def _words(epochs: Iterable[int]) -> str:
    known = sorted(epochs)
    if len(known) == 1:
        return str(known[0])
    return f"{len(known)} from {known[0]} to {known[-1]}"


def _claim(found: _Record) -> Claim:
    return Claim(run=found.run, token=found.token)


def _read(storage: Storage) -> _Record | None:
    try:
        return msgspec.json.decode(storage.get(_CLAIM), type=_Record)
    except StorageNotFoundError:
        return None


def _write(storage: Storage, owner: Owner, *, is_settled: bool) -> None:
    record: Any = _Record(run=owner.run, token=owner.token, is_settled=is_settled)
    storage.put(_CLAIM, msgspec.json.encode(record))
