"""What led to an epoch: runs, code, inputs; and which epochs touched a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from riverlock.snapshot.files import read_table
from riverlock.snapshot.layout import epoch_of
from riverlock.snapshot.reader import operator_of
from riverlock.snapshot.timeline import UNDONE, is_restored, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.records import (
        Flow,
        InputRange,
        Manifest,
        Run,
        StateFile,
    )

__all__ = ["Leg", "Lineage", "Touch", "lineage", "touches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Epochs of one run with the same code and parallelism, both ends included.

    Attributes:
        first: The first epoch.
        last: The last one.
        what: ``run``, ``restore`` (a new epoch that went back), or ``undone`` (epochs
            that did not lead here).
        run: Who decided them, if its claim is there.
        code: Fingerprint of the program, if an epoch of the leg is retained.
        parallelism: Tasks, likewise.
        from_epoch: Of a restore: where it went back to.
    """

    first: int
    last: int
    what: str
    run: Run | None = None
    code: str | None = None
    parallelism: int | None = None
    from_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What led to an epoch.

    Attributes:
        flow: The flow, with its origin if it is a fork.
        manifest: The epoch itself: code, parallelism, inputs, time and seed.
        run: Who decided it.
        legs: How it came to it, oldest first.
        inputs: What all retained epochs before it read, and it itself, by source.
    """

    flow: Flow
    manifest: Manifest
    run: Run | None
    legs: tuple[Leg, ...]
    inputs: dict[str, InputRange]


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


def lineage(catalog: Catalog, manifest: Manifest) -> Lineage:
    """Return what led to an epoch, as far as the store still knows.

    Raises:
        SnapshotError: A record cannot be read.
    """
    runs = _runs(catalog)
    retained = list(_ancestors(catalog, manifest))
    return Lineage(
        flow=catalog.flow(),
        manifest=manifest,
        run=runs.get(manifest.run),
        legs=tuple(_legs(manifest, retained, runs)),
        inputs=_inputs(retained),
    )


def _runs(catalog: Catalog) -> dict[int, Run]:
    numbers = [epoch_of(e.path) for e in catalog.storage.list(catalog.paths.runs)]
    found = [(n, catalog.run(n)) for n in numbers]
    return {n: run for n, run in found if run is not None}


def _ancestors(catalog: Catalog, manifest: Manifest) -> Iterator[Manifest]:
    """Yield the retained epochs that led to a manifest, it included, oldest first."""
    timeline = spans(manifest)
    for epoch in catalog.epochs():
        if any(a <= epoch <= b for a, b in timeline):
            yield manifest if epoch == manifest.epoch else catalog.manifest(epoch)


def _legs(
    manifest: Manifest, retained: list[Manifest], runs: dict[int, Run]
) -> Iterator[Leg]:
    tokens = {run.token: run for run in runs.values()}
    history = manifest.history or ((0, ""),)
    ends = [first - 1 for first, _ in history[1:]] + [manifest.epoch]
    for (first, token), last in zip(history, ends, strict=True):
        if first > last:
            continue
        if token == UNDONE:
            yield Leg(first=first, last=last, what="undone")
            continue
        inside = [m for m in retained if first <= m.epoch <= last]
        if inside and inside[0].epoch == first and is_restored(inside[0]):
            parent, run = inside[0].parent, tokens.get(token)
            yield Leg(
                first=first, last=first, what="restore", run=run, from_epoch=parent
            )
            first, inside = first + 1, inside[1:]
            if first > last:
                continue
        newest = inside[-1] if inside else None
        yield Leg(
            first=first,
            last=last,
            what="run",
            run=tokens.get(token),
            code=None if newest is None else newest.code,
            parallelism=None if newest is None else newest.parallelism,
        )


def _inputs(retained: list[Manifest]) -> dict[str, InputRange]:
    found: dict[str, InputRange] = {}
    for manifest in retained:
        for uid, span in manifest.inputs.items():
            before = found.get(uid)
            if before is None:
                found[uid] = span
                continue
            known = before.rows is not None and span.rows is not None
            rows = (before.rows or 0) + (span.rows or 0) if known else None
            found[uid] = msgspec.structs.replace(before, end=span.end, rows=rows)
    return found


def touches(
    catalog: Catalog,
    manifest: Manifest,
    operator: str,
    of_key: Callable[[pa.Table], pa.Table],
) -> list[Touch]:
    """Return the epochs up to a manifest that changed a key, oldest first.

    Args:
        catalog: The store.
        manifest: The last epoch to look at.
        operator: The operator.
        of_key: Picks the entries of the key.

    Raises:
        SnapshotNotFoundError: There is no such operator.
        SnapshotCorruptedError: A file is missing or altered.
    """
    operator_of(manifest, operator, store=catalog.storage.uri)
    retained = {m.epoch: m for m in _ancestors(catalog, manifest)}
    found = []
    for file in _files(retained.values(), operator):
        is_single = file.first_epoch == file.last_epoch
        epochs = range(file.first_epoch, file.last_epoch + 1)
        if not is_single and all(e in retained for e in epochs):
            continue  # the files of these epochs are there, and say more
        rows = of_key(read_table(catalog.storage, file))
        if rows.num_rows == 0:
            continue
        deletes = sum(rows["deleted"].to_pylist())
        epoch = retained.get(file.first_epoch) if is_single else None
        found.append(
            Touch(
                first=file.first_epoch,
                last=file.last_epoch,
                entries=rows.num_rows,
                deletes=deletes,
                inputs=None if epoch is None else epoch.inputs,
                path=file.path,
            )
        )
    return sorted(found, key=lambda t: (t.last, t.first))


def _files(manifests: Iterable[Manifest], operator: str) -> Iterator[StateFile]:
    """Yield each file once; of merged files only those that are in use."""
    seen: set[str] = set()
    for manifest in manifests:
        state = manifest.operators.get(operator)
        for file in () if state is None else state.files:
            if file.path not in seen:
                seen.add(file.path)
                yield file
