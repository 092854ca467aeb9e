"""Starts announce themselves, and leave nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.starts import announced, starts, withdraw
from riverlock.storage import LocalStorage

MINUTE_US = 60_000_000


def test_a_start_is_seen_until_it_is_withdrawn(tmp_path: Path) -> None:
    catalog = Catalog(LocalStorage(tmp_path / "store"))

    with announced(catalog, now_us=1) as start:
        assert starts(catalog, now_us=2) == [start]
        assert start.pid == os.getpid()
        with announced(catalog, now_us=3) as again:
            assert again == start
        assert starts(catalog, now_us=4) == [start]
        withdraw(catalog, start)
        assert starts(catalog, now_us=5) == []


def test_a_start_that_fails_leaves_no_store(tmp_path: Path) -> None:
    with announced(Catalog(LocalStorage(tmp_path / "store")), now_us=1):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_start_leaves_alone_what_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/notes.txt").touch()

    with announced(Catalog(LocalStorage(tmp_path / "store")), now_us=1):
        pass

    assert [p.name for p in (tmp_path / "store").iterdir()] == ["notes.txt"]


def test_dead_starts_are_not_seen_and_go_with_the_next(tmp_path: Path) -> None:
    catalog = Catalog(LocalStorage(tmp_path / "store"))
    with announced(catalog, now_us=1) as start:
        dead = msgspec.structs.replace(start, id="dead", process="another")
        away = msgspec.structs.replace(start, id="away", host="elsewhere")
        withdraw(catalog, start)
        for each in (dead, away):
            catalog.storage.put(catalog.paths.start(each.id), seal(each))

        assert starts(catalog, now_us=2) == [away]
        assert starts(catalog, now_us=11 * MINUTE_US) == []

        with announced(catalog, now_us=11 * MINUTE_US) as following:
            left = [e.path for e in catalog.storage.list(catalog.paths.starts)]
            assert left == [catalog.paths.start(following.id)]
