"""The change feed where it cannot rely on change files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.query.large import Counting, make_large

import riverlock as rl
from riverlock.change.migration import Migration
from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotCorruptedError,
    SnapshotNotFoundError,
)
from riverlock.core.types import schema_of
from riverlock.query.opened_store import Store
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.retention.compaction import Compaction, compact
from riverlock.state.layout import StateLayout

EPOCHS: list[dict[int, int | None]] = [
    {1: 10, 2: 20, 3: 30},
    {1: 11, 4: 40},
    {2: None, 4: 41},
    {2: 22, 3: None, 1: 11},
]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return make_large(tmp_path / "store", EPOCHS, 2)


def _feed(catalog: Catalog, since: int, until: int | None = None) -> set[Any]:
    rows = Store(catalog).changes("op", since=since, until=until)
    return {
        (
            r["epoch"],
            r["k"],
            r["change"],
            None if r["before"] is None else r["before"]["n"],
            None if r["after"] is None else r["after"]["n"],
        )
        for r in rows
    }


ONE = {(1, 1, "upsert", 10, 11), (1, 4, "upsert", None, 40)}
TWO = {(2, 2, "delete", 20, None), (2, 4, "upsert", 40, 41)}
# Key 1 was written anew with the value that it had.
THREE = {(3, 2, "upsert", None, 22), (3, 3, "delete", 30, None)}


def test_feed_gives_what_each_epoch_changed(catalog: Catalog) -> None:
    assert _feed(catalog, 0) == ONE | TWO | THREE
    assert _feed(catalog, 1, 2) == TWO
    assert _feed(catalog, 3) == set()


def test_only_change_files_are_read_after_the_first_epoch(catalog: Catalog) -> None:
    storage = catalog.storage
    assert isinstance(storage, Counting)
    storage.read.clear()

    assert _feed(catalog, 2) == THREE

    # Each file once: two for each of the epochs up to the third, two of the fourth.
    paths = [path for path, _ in storage.read]
    assert len(paths) == len(set(paths)) == 8


def test_epochs_that_are_gone_are_summed_up(catalog: Catalog) -> None:
    for epoch in (1, 2):
        catalog.storage.delete(catalog.paths.manifest(epoch))

    assert _feed(catalog, 0) == {
        (3, 1, "upsert", 10, 11),
        (3, 2, "upsert", 20, 22),
        (3, 3, "delete", 30, None),
        (3, 4, "upsert", None, 41),
    }


def _append(catalog: Catalog, files: Any, since: int = 0) -> None:
    newest = catalog.resolve(None)
    state = msgspec.structs.replace(newest.operators["op"], files=files, since=since)
    manifest = msgspec.structs.replace(
        newest, epoch=newest.epoch + 1, parent=newest.epoch, operators={"op": state}
    )
    assert catalog.decide(manifest)


def test_state_that_went_back_is_compared(catalog: Catalog) -> None:
    _append(catalog, catalog.manifest(1).operators["op"].files)

    assert _feed(catalog, 3) == {
        (4, 2, "upsert", 22, 20),
        (4, 3, "upsert", None, 30),
        (4, 4, "upsert", 41, 40),
    }


def test_what_expires_is_deleted(tmp_path: Path) -> None:
    epochs: list[dict[int, int | None]] = [{1: 10, 2: 20}, {1: 11}, {3: 30}]
    catalog = make_large(tmp_path / "store", epochs, 1, first_expires_us=2)

    assert _feed(catalog, 0) == {
        (1, 1, "upsert", 10, 11),
        (2, 2, "delete", 20, None),
        (2, 3, "upsert", None, 30),
    }


def test_merged_files_are_no_change(catalog: Catalog) -> None:
    files = catalog.resolve(None).operators["op"].files
    plan = Compaction(operator="op", files=files, drops_tombstones=True)
    merged = compact(
        catalog.storage,
        catalog.paths,
        plan,
        now_us=3,
        pieces=[(0, 100), (100, 128)],
        attempt="merged",
    )
    _append(catalog, merged)

    assert _feed(catalog, 3) == set()
    assert _feed(catalog, 2) == THREE


def test_state_that_was_migrated_is_compared(catalog: Catalog) -> None:
    newest = catalog.resolve(None)
    cents = rl.Value("bigint", migrate=lambda euros: euros * 100)
    cents.name = "n"
    layout = StateLayout(schema_of("k bigint"), {"n": cents})
    migrated = Migration("op", layout, {"n": cents}).rewrite(
        catalog.storage,
        catalog.paths,
        newest.operators["op"],
        epoch=newest.epoch,
        now_us=3,
        pieces=[(0, 128)],
        attempt="m",
    )
    _append(catalog, migrated.files, since=migrated.since)

    assert _feed(catalog, 3) == {
        (4, 1, "upsert", 11, 1100),
        (4, 2, "upsert", 22, 2200),
        (4, 4, "upsert", 41, 4100),
    }


def test_span_that_runs_backwards_or_is_unknown_is_refused(catalog: Catalog) -> None:
    store = Store(catalog)

    with pytest.raises(InvalidConfigError):
        store.changes("op", since=2, until=1)
    with pytest.raises(SnapshotNotFoundError):
        store.changes("op", since="nowhere")


def test_epoch_that_is_deleted_while_it_is_read_is_no_damage(catalog: Catalog) -> None:
    relation = Store(catalog).state("op", at=0)
    feed = Store(catalog).changes("op", since=0, until=1)
    for file in relation.view.state.files:
        catalog.storage.delete(file.path)

    with pytest.raises(SnapshotCorruptedError):
        relation.to_arrow()
    catalog.storage.delete(catalog.paths.manifest(0))

    for rows in (relation, feed):
        with pytest.raises(SnapshotNotFoundError, match="deleted while it was read"):
            list(rows)
