"""Which epochs changed a key, and what they had read: the provenance of a value.

An operator is followed through its names (``was`` of its state, format §4.1), and a
fork into the store that it began with, as far as that can be reached.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotError, StorageError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.parents import own_path
from riverlock.snapshot.lineage import ancestors
from riverlock.snapshot.state_reader import entries_in, operator_of
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from riverlock.snapshot.format.parts import IdSpan
    from riverlock.snapshot.format.records import (
        InputRange,
        Manifest,
        OperatorState,
        StateFile,
    )
    from riverlock.storage.base import Storage

__all__ = ["Touch", "touches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """Epochs that changed a key; one epoch, unless its changes have been merged.

    Attributes:
        first: The first epoch that may have.
        last: The last one.
        entries: How many entries of the key the file has.
        deletes: How many of them say that something is gone.
        inputs: What the epoch read, if it is one and retained.
        path: The file that says so.
    """

    first: int
    last: int
    entries: int
    deletes: int
    inputs: dict[str, InputRange] | None
    path: str


@dataclass(frozen=True, slots=True)
class _Epoch:
    """A retained epoch, the store it is in, and what it read, if that is known."""

    storage: Storage
    manifest: Manifest
    inputs: dict[str, InputRange] | None


def touches(
    catalog: Catalog,
    manifest: Manifest,
    operator: str,
    span: IdSpan,
    of_key: Callable[[pa.Table], pa.Table],
) -> list[Touch]:
    """Return the epochs up to a manifest that changed a key, oldest first.

    Args:
        catalog: The store.
        manifest: The last epoch to examine.
        operator: The operator, by its uid in that epoch.
        span: The ids of the key: only what can hold some of them is read.
        of_key: Picks the entries of the key from those in the span.

    Raises:
        SnapshotNotFoundError: There is no such operator.
        SnapshotCorruptedError: A file is missing or altered.
    """
    operator_of(manifest, operator, store=catalog.storage.uri)
    retained = _retained(catalog, manifest)
    found = []
    for storage, file in _files(retained, operator):
        is_single = file.first_epoch == file.last_epoch
        epochs = range(file.first_epoch, file.last_epoch + 1)
        if not is_single and all(e in retained for e in epochs):
            continue  # the files of these epochs are there, and say more
        if not span.meets_file(file):
            continue
        rows = of_key(entries_in(storage, file, span))
        if rows.num_rows == 0:
            continue
        epoch = retained.get(file.first_epoch) if is_single else None
        found.append(
            Touch(
                first=file.first_epoch,
                last=file.last_epoch,
                entries=rows.num_rows,
                deletes=sum(rows["deleted"].to_pylist()),
                inputs=None if epoch is None else epoch.inputs,
                path=file.path,
            )
        )
    return sorted(found, key=lambda t: (t.last, t.first))


def _retained(catalog: Catalog, manifest: Manifest) -> dict[int, _Epoch]:
    """Return the epochs that led to a manifest, for a fork also its parent's."""
    origin = catalog.flow().origin
    mine = {
        m.epoch: _Epoch(catalog.storage, m, m.inputs)
        for m in ancestors(catalog, manifest)
    }
    if origin is None:
        return mine
    began = origin.epochs.get(catalog.region)
    if began is None:
        return mine  # a region that the fork has added
    if began in mine:
        # Made by the fork, which read nothing: its parent knows more.
        mine[began] = replace(mine[began], inputs=None)
    before: dict[int, _Epoch] = {}
    # It may be out of reach, another store by now, or without the epoch.
    with contextlib.suppress(SnapshotError, StorageError):
        parent = Catalog(open_storage(origin.store), catalog.region)
        if parent.flow().id == origin.flow:
            before = _retained(parent, parent.manifest(began))
    return {**mine, **before}


def _files(
    retained: dict[int, _Epoch], operator: str
) -> Iterator[tuple[Storage, StateFile]]:
    """Yield each file once; of merged files only those that are in use."""
    seen: set[str] = set()
    uid, state = operator, None
    for number in sorted(retained, reverse=True):
        epoch = retained[number]
        if state is not None:
            before = _uid_at(number, uid, state)
            if before is None:
                return
            uid = before
        state = epoch.manifest.operators.get(uid)
        if state is None:
            return
        for file in state.files:
            path = own_path(file.path)
            if path not in seen:
                seen.add(path)
                yield epoch.storage, file


def _uid_at(epoch: int, uid: str, later: OperatorState) -> str | None:
    """Return the uid that state of a later epoch had in one; None: there was none."""
    if epoch > later.since or (epoch == later.since and later.was is None):
        return uid
    return later.was
