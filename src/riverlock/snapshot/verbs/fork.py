"""A new store that begins with the state of another one's epoch (format §6.2).

Files stay where they are: the fork refers to them, and its record in the parent's store
pins the epoch they belong to. The record comes first and ``flow.json`` of the new store
last: an unfinished fork is not a store, and can be begun again.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from riverlock.core import faults
from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotCorruptedError,
    SnapshotError,
    SnapshotNotFoundError,
    StorageError,
    StorageNotFoundError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim, release
from riverlock.snapshot.format.parents import own_path, parent_in, read_parent
from riverlock.snapshot.format.records import (
    FORMAT,
    PARENTS_FEATURE,
    Flow,
    ForkRecord,
    InputRange,
    Origin,
)
from riverlock.snapshot.format.references import source_lists, state_files
from riverlock.snapshot.format.sealed import checksum, seal, unseal
from riverlock.snapshot.format.state_files import read_file
from riverlock.snapshot.format.store_layout import (
    FLOW,
    FORKING,
    PARENTS,
    fork_path,
    parent_path,
)
from riverlock.snapshot.retention.lease import leased
from riverlock.snapshot.verbs.channel_copy import check_channels, copy_channels
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.format.records import Manifest, Run, StateFile
    from riverlock.storage.base import Storage

__all__ = ["Fork", "forget_fork", "fork", "plan_fork", "settle_parents"]

log = logging.getLogger(__name__)
_COPY_LEASE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A fork, before it is made.

    Attributes:
        target: The epoch that it begins with.
        origin: Where that is.
        store: The address of the new store.
        is_copy: Whether files are copied.
        files: How many state files there are.
        bytes: Their size.
    """

    target: Manifest
    origin: Origin
    store: str
    is_copy: bool
    files: int
    bytes: int


def plan_fork(
    catalog: Catalog, target: Manifest, new: Storage, *, copy: bool = False
) -> Fork:
    """Return what a fork would do; do nothing.

    Raises:
        InvalidConfigError: The new place is not empty, or the channels of the epoch are
            unknown.
    """
    check_channels(catalog.storage, target)
    origin = Origin(
        flow=target.flow,
        store=catalog.storage.uri,
        region=catalog.region,
        epoch=target.epoch,
    )
    catalog.check_one_region("fork")
    _begun(new, origin, copy=copy)
    files = state_files(target)
    return Fork(
        target=target,
        origin=origin,
        store=new.uri,
        is_copy=copy,
        files=len(files),
        bytes=sum(f.bytes for f in files),
    )


def _begun(new: Storage, origin: Origin, *, copy: bool) -> ForkRecord | None:
    """Return the record of the same fork, if it was begun; None: the place is empty."""
    if next(iter(new.list()), None) is None:
        return None
    if not new.exists(FLOW) and new.exists(FORKING):
        found = unseal(new.get(FORKING), ForkRecord, path=FORKING)
        if found.origin == origin and found.is_copy == copy:
            return found
    raise InvalidConfigError(
        f"the new store {new.uri}",
        expected="an empty place",
        found="a store" if new.exists(FLOW) else "files",
        hint="nothing was changed; choose another place",
    )


def fork(catalog: Catalog, plan: Fork, *, now_us: int) -> Catalog:
    """Make the new store and return it. An interrupted fork is continued.

    Raises:
        SnapshotNotFoundError: The epoch is no longer retained, or not whole.
        SnapshotCorruptedError: A file that is copied is damaged.
    """
    new = Catalog(open_storage(plan.store), catalog.region)
    record = _begun(new.storage, plan.origin, copy=plan.is_copy) or ForkRecord(
        flow=uuid.uuid4().hex,
        store=plan.store,
        region=catalog.region,
        epoch=plan.target.epoch,
        created_us=now_us,
        origin=plan.origin,
        is_copy=plan.is_copy,
    )
    if not new.storage.put_if_absent(FORKING, seal(record)):
        # Of an earlier attempt, or of somebody who was faster: there is one fork only.
        begun = _begun(new.storage, plan.origin, copy=plan.is_copy)
        assert begun is not None
        record = begun
    with contextlib.ExitStack() as stack:
        if plan.is_copy:
            lease = leased(catalog, plan.target.epoch, lasts=_COPY_LEASE)
            held = stack.enter_context(lease)
            faults.hit("V1")
            for file in state_files(plan.target):
                held.renew(_COPY_LEASE)
                _copy_file(catalog.storage, new.storage, file)
        else:
            _register(catalog, new.storage, plan, record)
        _copy_lists(catalog.storage, new.storage, plan.target)
        copy_channels(catalog.storage, new.storage, plan.target)
        _found(catalog, new, plan, record, now_us=now_us)
    faults.hit("V4")
    new.storage.delete(FORKING)
    return new


def _register(catalog: Catalog, new: Storage, plan: Fork, record: ForkRecord) -> None:
    """Pin what we refer to, in every store that has some of it."""
    for parent in _parents(catalog, plan):
        there = Catalog(open_storage(parent.store), parent.region)
        mine = msgspec.structs.replace(record, epoch=parent.epoch, region=parent.region)
        path = fork_path(record.flow)
        if not there.hold(path, mine, epoch=parent.epoch):
            # Ours, from before we were broken off: it may not have kept its epoch.
            there.storage.put(path, seal(mine))
            there.check_held(path, epoch=parent.epoch)
        faults.hit("V1")
        new.put_if_absent(parent_path(parent.flow), seal(parent))


def _parents(catalog: Catalog, plan: Fork) -> Iterator[Origin]:
    """Yield the stores that hold state files; a fork's files may be its parent's."""
    yield plan.origin
    flows = {parent_in(f.path) for f in state_files(plan.target)} - {None}
    for flow in sorted(f for f in flows if f is not None):
        found = read_parent(catalog.storage, flow)
        if found is None:
            raise SnapshotNotFoundError(
                f"the parent store {flow}",
                store=catalog.storage.uri,
                available=f"no {parent_path(flow)}",
            )
        yield found


def _copy_file(old: Storage, new: Storage, file: StateFile) -> None:
    data = read_file(old, file.path, size=file.bytes, expected=file.checksum)
    new.put(own_path(file.path), data)


def _copy_lists(old: Storage, new: Storage, target: Manifest) -> None:
    """Copy the lists that offsets of sources name: small, and read by path."""
    for path in source_lists(target):
        try:
            new.put_if_absent(path, old.get(path))
        except StorageNotFoundError as error:
            raise SnapshotCorruptedError(
                path, expected="a source's list", found="no such file"
            ) from error


def _found(
    catalog: Catalog, new: Catalog, plan: Fork, record: ForkRecord, *, now_us: int
) -> None:
    """Decide the first epoch, then the store itself."""
    parent = catalog.flow()
    run = claim(new, now_us=now_us)
    try:
        faults.hit("V2")
        new.decide(_first(plan, record, run, now_us=now_us))
        faults.hit("V3")
        flow = Flow(
            format=FORMAT,
            name=parent.name,
            id=record.flow,
            key_groups=parent.key_groups,
            created_us=now_us,
            features=() if plan.is_copy else (PARENTS_FEATURE,),
            origin=plan.origin,
        )
        new.storage.put_if_absent(FLOW, seal(flow))
    finally:
        release(new, run)


def _first(plan: Fork, record: ForkRecord, run: Run, *, now_us: int) -> Manifest:
    """Return the manifest that the fork begins with: no sink has anything to commit."""
    target = plan.target
    operators = {
        uid: msgspec.structs.replace(
            state,
            files=tuple(
                msgspec.structs.replace(f, path=_path_in(plan, f.path))
                for f in state.files
            ),
        )
        for uid, state in target.operators.items()
    }
    return msgspec.structs.replace(
        target,
        flow=record.flow,
        parent=None,
        run=run.run,
        started_us=now_us,
        decided_us=now_us,
        history=((target.epoch, run.token),),
        inputs={
            uid: InputRange(start=r.end, end=r.end, rows=0)
            for uid, r in target.inputs.items()
        },
        operators=operators,
        outputs={},
        metrics={},
    )


def _path_in(plan: Fork, path: str) -> str:
    if plan.is_copy:
        return own_path(path)
    return path if parent_in(path) else f"{PARENTS}{plan.origin.flow}/{path}"


def settle_parents(catalog: Catalog, *, now_us: int) -> list[str]:
    """Hold what our epochs need of other stores, and release what none needs.

    Returns the flows of the stores that are free of us. A store that cannot be reached
    keeps its record.
    """
    records = [e.path for e in catalog.storage.list(PARENTS) if e.path.count("/") == 1]
    if not records:
        return []
    needed = {
        parent_in(file.path)
        for epoch in catalog.epochs()
        for file in state_files(catalog.manifest(epoch))
    }
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
    return ForkRecord(
        flow=name,
        store=store,
        region=parent.region,
        epoch=parent.epoch,
        created_us=now_us,
    )


def _hold_again(there: Catalog, path: str, record: ForkRecord) -> None:
    try:
        there.hold(path, record, epoch=record.epoch)
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
