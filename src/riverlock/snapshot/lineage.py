"""What led to an epoch: runs, code, inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from riverlock.snapshot.timeline import UNDONE, is_restored, spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import (
        Flow,
        InputRange,
        Manifest,
        Run,
    )

__all__ = ["Leg", "Lineage", "ancestors", "lineage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Epochs of one run with the same code and parallelism, both ends included.

    Attributes:
        first: The first epoch.
        last: The last one.
        what: ``run``, ``restore`` (a new epoch that went back), or ``undone`` (epochs
            that did not lead here).
        run: Who decided them, if its claim exists.
        code: Fingerprint of the program, if an epoch of the leg is retained.
        parallelism: Tasks, likewise.
        from_epoch: For a restore: where it went back to.
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


def lineage(catalog: Catalog, manifest: Manifest) -> Lineage:
    """Return what led to an epoch, as far as the store still knows.

    Raises:
        SnapshotError: A record cannot be read.
    """
    runs = _runs(catalog)
    retained = list(ancestors(catalog, manifest))
    return Lineage(
        flow=catalog.flow(),
        manifest=manifest,
        run=runs.get(manifest.run),
        legs=tuple(_legs(manifest, retained, runs)),
        inputs=_inputs(retained),
    )


def _runs(catalog: Catalog) -> dict[int, Run]:
    found = [(n, catalog.run(n)) for n, _ in catalog.listed_runs()]
    return {n: run for n, run in found if run is not None}


def ancestors(catalog: Catalog, manifest: Manifest) -> Iterator[Manifest]:
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
