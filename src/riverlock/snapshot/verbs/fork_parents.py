"""What a fork has in the stores whose files it refers to (format §6.2).

A record there pins the epochs that the files belong to, in all regions, until no epoch
of the fork names a file of that store any more.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import msgspec

from riverlock.core import faults
from riverlock.core.errors import SnapshotError, SnapshotNotFoundError, StorageError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.parents import parent_in, read_parent
from riverlock.snapshot.format.records import ForkRecord, Origin
from riverlock.snapshot.format.references import channel_files, state_files
from riverlock.snapshot.format.sealed import checksum, seal, unseal
from riverlock.snapshot.format.store_layout import PARENTS, fork_path, parent_path
from riverlock.snapshot.kept_epochs import held_for
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from riverlock.storage.base import Storage

__all__ = ["forget_fork", "register", "settle_parents"]

log = logging.getLogger(__name__)


def register(
    old: Storage, new: Storage, record: ForkRecord, paths: Iterable[str]
) -> None:
    """Pin what a fork refers to, in every store that has some of it.

    Args:
        old: The store that is forked.
        new: The fork's.
        record: The fork.
        paths: The files it will refer to, as the forked store names them.
    """
    for parent in _parents(old, record, paths):
        there = open_storage(parent.store)
        mine = _record_in(parent, record)
        path = fork_path(record.flow)
        home = Catalog(there, parent.region)
        if not home.hold_all(path, mine, held_for(mine)):
            # Ours, from before we were broken off: it may not have kept its epochs.
            there.put(path, seal(mine))
            home.check_all_held(path, held_for(mine))
        faults.hit("V1")
        new.put_if_absent(parent_path(parent.flow), seal(parent))


def _parents(
    old: Storage, record: ForkRecord, paths: Iterable[str]
) -> Iterator[Origin]:
    """Yield the stores that hold the files; a fork's files may be its parent's."""
    assert record.origin is not None
    yield record.origin
    for flow in sorted({parent_in(path) for path in paths} - {None}, key=str):
        assert flow is not None
        found = read_parent(old, flow)
        if found is None:
            raise SnapshotNotFoundError(
                f"the parent store {flow}",
                store=old.uri,
                available=f"no {parent_path(flow)}",
            )
        yield found


def _record_in(parent: Origin, record: ForkRecord) -> ForkRecord:
    """Return what a fork says in one of the stores that it refers to."""
    return msgspec.structs.replace(
        record,
        region=parent.region,
        epoch=parent.epoch,
        regions=parent.regions,
        in_flight=parent.in_flight,
    )


def settle_parents(catalog: Catalog, *, now_us: int) -> list[str]:
    """Hold what our epochs need of other stores, and release what none needs.

    Returns the flows of the stores that are free of us. A store that cannot be reached
    keeps its record.
    """
    records = [e.path for e in catalog.storage.list(PARENTS) if e.path.count("/") == 1]
    if not records:
        return []
    needed = _needed(catalog)
    freed = []
    for path in records:
        parent = unseal(catalog.storage.get(path), Origin, path=path)
        with contextlib.suppress(StorageError):
            there = Catalog(open_storage(parent.store), parent.region)
            mine = _own_record(catalog, parent, there.storage, now_us=now_us)
            own = fork_path(mine.flow)
            if parent.flow not in needed:
                there.storage.delete(own)
                catalog.storage.delete(path)
                freed.append(parent.flow)
            elif not there.storage.exists(own):
                _hold_again(there, own, mine)
    return freed


def _needed(catalog: Catalog) -> set[str | None]:
    """Return the flows whose files epochs of any region refer to.

    An epoch that is deleted while we look may have passed files on to one that we have
    not seen: then we look again.
    """
    while True:
        found = set[str | None]()
        try:
            for region in catalog.regions():
                part = catalog.of(region)
                for epoch in part.epochs():
                    manifest = part.manifest(epoch)
                    paths = [f.path for f in state_files(manifest)]
                    found |= set(map(parent_in, [*paths, *channel_files(manifest)]))
        except SnapshotNotFoundError:
            continue
        return found


def _own_record(
    catalog: Catalog, parent: Origin, there: Storage, *, now_us: int
) -> ForkRecord:
    """Return what this store has in its parent.

    A copy of a fork has the fork's id, and needs a record of its own: neither releases
    what the other holds.
    """
    flow, store = catalog.flow().id, catalog.storage.uri
    copied = f"{flow}-{checksum(store.encode())[:12]}"
    name = flow
    if there.exists(fork_path(copied)):
        name = copied
    elif there.exists(fork_path(flow)):
        path = fork_path(flow)
        found = unseal(there.get(path), ForkRecord, path=path)
        name = flow if found.store == store else copied
    record = ForkRecord(flow=name, store=store, region="", epoch=0, created_us=now_us)
    return _record_in(parent, record)


def _hold_again(there: Catalog, path: str, record: ForkRecord) -> None:
    try:
        there.hold_all(path, record, held_for(record))
    except SnapshotError as error:
        log.warning(
            "%s refers to files of %s, which does not keep them: %s;"
            " riverlock verify tells which epochs are whole",
            record.store,
            there.storage.uri,
            error,
        )


def forget_fork(catalog: Catalog, flow: str) -> None:
    """Remove the record of a fork whose store no longer exists.

    Raises:
        SnapshotNotFoundError: There is no such fork.
    """
    path = fork_path(flow)
    if not catalog.storage.exists(path):
        raise SnapshotNotFoundError(
            f"fork {flow!r}", store=catalog.storage.uri, available=f"no {path}"
        )
    catalog.storage.delete(path)
