"""A new store that begins with the state of another one's epoch (format §6.2).

Of a flow with several regions it is one epoch of each, and the rows in flight between
them. Files stay where they are: the fork refers to them, and its record in the parent's
store pins the epochs they belong to. The record comes first and ``flow.json`` of the
new store last: an unfinished fork is not a store, and can be begun again.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from riverlock.core import faults
from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotCorruptedError,
    StorageNotFoundError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim, release
from riverlock.snapshot.file_lists import listed, put_lists
from riverlock.snapshot.format.parents import own_path
from riverlock.snapshot.format.records import (
    FORMAT,
    LISTS_FEATURE,
    PARENTS_FEATURE,
    Flow,
    ForkRecord,
    Origin,
)
from riverlock.snapshot.format.references import source_lists, state_files
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.state_files import read_file
from riverlock.snapshot.format.store_layout import FLOW, FORKING
from riverlock.snapshot.in_flight import between
from riverlock.snapshot.kept_epochs import held_by
from riverlock.snapshot.retention.lease import leased
from riverlock.snapshot.verbs.channel_copy import check_channels, copy_channels
from riverlock.snapshot.verbs.first_epochs import FirstEpochs
from riverlock.snapshot.verbs.fork_parents import register
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.format.records import Manifest, StateFile
    from riverlock.snapshot.in_flight import Between
    from riverlock.storage.base import Storage

__all__ = ["Fork", "fork", "plan_fork"]

_COPY_LEASE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A fork, before it is made.

    Attributes:
        targets: The epochs that it begins with, one of each region.
        between: What is in flight between them.
        origin: Where they are.
        store: The address of the new store.
        is_copy: Whether files are copied.
        files: How many files there are: of state, and of rows in flight.
        bytes: Their size.
    """

    targets: tuple[Manifest, ...]
    between: tuple[Between, ...]
    origin: Origin
    store: str
    is_copy: bool
    files: int
    bytes: int

    @property
    def rows_in_flight(self) -> int:
        """How many rows the new store has yet to read from its channels."""
        return sum(flying.span.rows for flying in self.between)

    @property
    def paths(self) -> Iterator[str]:
        """The files, as the store that is forked names them."""
        for target in self.targets:
            yield from (file.path for file in state_files(target))
        for flying in self.between:
            yield from (token["path"] for _, token in flying.files)


def plan_fork(
    catalog: Catalog,
    targets: tuple[Manifest, ...],
    new: Storage,
    *,
    copy: bool = False,
) -> Fork:
    """Return what a fork would do; do nothing.

    Args:
        catalog: The store.
        targets: One epoch of each region, that fit together.
        new: The place of the new store.
        copy: Whether files are copied.

    Raises:
        InvalidConfigError: The new place is not empty, or the channels of the epoch are
            unknown.
        SnapshotNotFoundError: Rows that were in flight are no longer retained.
    """
    for target in targets:
        check_channels(catalog.storage, target)
    first, *others = targets
    flying = between(catalog, targets)
    origin = Origin(
        flow=first.flow,
        store=catalog.storage.uri,
        region=first.region,
        epoch=first.epoch,
        regions={m.region: m.epoch for m in targets} if others or flying else {},
        in_flight=tuple(b.span for b in flying),
    )
    _begun(new, origin, copy=copy)
    files = [f for target in targets for f in state_files(target)]
    tokens = [token for each in flying for _, token in each.files]
    return Fork(
        targets=targets,
        between=flying,
        origin=origin,
        store=new.uri,
        is_copy=copy,
        files=len(files) + len(tokens),
        bytes=sum(f.bytes for f in files) + sum(t["bytes"] for t in tokens),
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
        SnapshotNotFoundError: An epoch is no longer retained, or not whole.
        SnapshotCorruptedError: A file that is copied is damaged.
    """
    new = Catalog(open_storage(plan.store), plan.origin.region)
    record = _begun(new.storage, plan.origin, copy=plan.is_copy) or ForkRecord(
        flow=uuid.uuid4().hex,
        store=plan.store,
        region=plan.origin.region,
        epoch=plan.origin.epoch,
        created_us=now_us,
        origin=plan.origin,
        is_copy=plan.is_copy,
        regions=plan.origin.regions,
        in_flight=plan.origin.in_flight,
    )
    if not new.storage.put_if_absent(FORKING, seal(record)):
        # Of an earlier attempt, or of somebody who was faster: there is one fork only.
        begun = _begun(new.storage, plan.origin, copy=plan.is_copy)
        assert begun is not None
        record = begun
    if plan.is_copy:
        _copy_all(catalog, new.storage, plan)
    else:
        register(catalog.storage, new.storage, record, plan.paths)
    for target in plan.targets:
        _copy_lists(catalog.storage, new.storage, target)
        copy_channels(catalog.storage, new.storage, target)
    _found(catalog, new, plan, record, now_us=now_us)
    faults.hit("V4")
    new.storage.delete(FORKING)
    return new


def _copy_all(catalog: Catalog, new: Storage, plan: Fork) -> None:
    """Copy files of state and rows in flight, which are kept meanwhile."""
    with contextlib.ExitStack() as stack:
        held = [
            stack.enter_context(leased(catalog.of(r), epoch, lasts=_COPY_LEASE))
            for r, epoch in dict.fromkeys(_held(plan.origin))
        ]
        faults.hit("V1")
        for target in plan.targets:
            for file in state_files(target):
                for lease in held:
                    lease.renew(_COPY_LEASE)
                _copy_file(catalog.storage, new, file)
        for flying in plan.between:
            for _, token in flying.files:
                path, size = token["path"], token["bytes"]
                data = read_file(
                    catalog.storage, path, size=size, expected=token["checksum"]
                )
                new.put(own_path(path), data)


def _held(origin: Origin) -> Iterator[tuple[str, int]]:
    yield from origin.epochs.items()
    yield from held_by(origin)


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
    """Decide the first epoch of each region, then the store itself."""
    parent = catalog.flow()
    firsts = FirstEpochs(
        flow=record.flow,
        parent=None if plan.is_copy else plan.origin.flow,
        between=plan.between,
    )
    features = [f for f in parent.features if f != PARENTS_FEATURE]
    features += () if plan.is_copy else (PARENTS_FEATURE,)
    with contextlib.ExitStack() as stack:
        for target in plan.targets:
            part = new.of(target.region)
            run = claim(part, now_us=now_us)
            stack.callback(release, part, run)
            faults.hit("V2")
            first, lists = listed(
                firsts.of(target, run, now_us=now_us),
                None,
                attempt=f"{run.run:06d}-0-{run.token[:12]}",
            )
            put_lists(part, lists)
            features += (LISTS_FEATURE,) if lists else ()
            part.decide(first)
        faults.hit("V3")
        flow = Flow(
            format=FORMAT,
            name=parent.name,
            id=record.flow,
            key_groups=parent.key_groups,
            created_us=now_us,
            features=tuple(dict.fromkeys(features)),
            origin=plan.origin,
        )
        new.storage.put_if_absent(FLOW, seal(flow))
