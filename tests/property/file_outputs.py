"""Stores that write files to one place, on a machine that dies when it is told.

Stores are dictionaries here, and so is the output in an object store.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pytest
from tests.unit.snapshot.builders import catalog as new_catalog
from tests.unit.snapshot.builders import manifest

import riverlock as rl
from riverlock.connectors.base.committer import Committer, Owner
from riverlock.connectors.base.sink import SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    ForeignEpochError,
    StorageNotFoundError,
)
from riverlock.core.types import schema_of
from riverlock.snapshot import claims
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import Manifest, Run, SinkOutput
from riverlock.snapshot.format.run_status import status_of
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.past import StorePast
from riverlock.snapshot.timeline import given, joined
from riverlock.storage.base import Entry
from riverlock.storage.local import LocalStorage
from riverlock.storage.object import ObjectStorage

__all__ = ["REFUSED", "Backup", "Died", "Outputs", "Store"]

_NOTHING = SinkOutput(kind="files")
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_SCHEMA = schema_of("id bigint")
# What a store is told that must not go on.
REFUSED = (FencedError, ForeignEpochError)


Backup = tuple[dict[str, bytes], dict[int, Counter[int]]]


class Died(BaseException):
    """A process that is no more."""


class InMemory:
    """The methods of an object store that is a dictionary of the machine."""

    machine: ClassVar[Machine]
    uri: str

    def files(self) -> dict[str, bytes]:
        InMemory.machine.access()
        return InMemory.machine.objects.setdefault(self.uri, {})

    def get(self, path: str) -> bytes:
        found = self.files()
        if path not in found:
            raise StorageNotFoundError(path)
        return found[path]

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[Entry]:
        return iter(
            [
                Entry(path=path, size=len(data), mtime=_NOW)
                for path, data in sorted(self.files().items())
                if path.startswith(prefix) and (after is None or path > after)
            ]
        )

    def head(self, path: str) -> Entry | None:
        return next((e for e in self.list(path) if e.path == path), None)

    def put(self, path: str, data: bytes) -> None:
        self.files()[path] = data

    def put_if_absent(self, path: str, data: bytes) -> bool:
        found = self.files()
        if path in found:
            return False
        found[path] = data
        return True

    def copy(self, source: str, target: str) -> None:
        data = self.get(source)
        self.files()[target] = data

    def delete(self, path: str) -> None:
        self.files().pop(path, None)


class Machine:
    """Where everything runs: it counts accesses, and dies before one of them."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, bytes]] = {}
        self.left: int | None = None  # accesses until it dies
        self.patch = pytest.MonkeyPatch()
        self._patch_files()
        self.patch.setattr(InMemory, "machine", self, raising=False)
        for name, method in vars(InMemory).items():
            if callable(method):
                self.patch.setattr(ObjectStorage, name, method, raising=False)

    def access(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Died

    def _patch_files(self) -> None:
        for where, names in (
            (Path, ("rename", "replace", "unlink", "mkdir")),
            (os, ("link",)),
            (shutil, ("rmtree",)),
            (LocalStorage, ("put", "put_if_absent", "delete", "get")),
        ):
            for name in names:
                self.patch.setattr(where, name, self._counted(getattr(where, name)))
        self.patch.setattr(os, "fsync", lambda _: None)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        inside = False

        def call(*args: Any, **more: Any) -> Any:
            nonlocal inside
            if inside:
                return function(*args, **more)
            self.access()
            inside = True
            try:
                return function(*args, **more)
            finally:
                inside = False

        return call


@dataclass
class Store:
    """A store, and what must be in sight for each of its epochs."""

    name: str
    rows: dict[int, Counter[int]] = field(default_factory=dict)
    # Its run, if it has one.
    run: Run | None = None
    committer: Committer | None = None

    @property
    def catalog(self) -> Catalog:
        return Catalog(ObjectStorage(self.name))

    @property
    def expected(self) -> Counter[int]:
        newest = self.catalog.newest()
        return Counter() if newest is None else self.rows[newest.epoch]


class Outputs:
    """Stores that have the same output, one of which has opened it last."""

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.machine = Machine()
        self.machine.patch.setattr(claims, "_is_alive", lambda *_: False)
        # In memory, where there is such a place.
        memory = Path("/dev/shm")
        self.folder = tempfile.mkdtemp(dir=memory if memory.is_dir() else None)
        out = "s3://out" if self.is_object else f"{self.folder}/out"
        self.sink = rl.sinks.files(out, format="json")
        self.use = SinkUse(uid="out", schema=_SCHEMA, replaces=False)
        self.count = 0
        first = Store("s3://store-0")
        new_catalog(ObjectStorage(first.name))  # type: ignore[arg-type]
        self.stores = [first]
        self.owner: Store | None = None

    def close(self) -> None:
        self.machine.patch.undo()
        shutil.rmtree(self.folder)

    def start(self, store: Store) -> None:
        store.run = store.committer = self.owner = None
        run = claim(store.catalog, now_us=1)
        newest = store.catalog.newest()
        committer = self.sink.committer(self.use, store.catalog.storage)
        committer.open(
            Owner(
                flow="shop",
                sink="out",
                run=run.run,
                token=run.token,
                past=StorePast(store.catalog, newest),
            )
        )
        store.run, store.committer = run, committer
        if newest is not None:
            self.commit(store, newest)
        self.owner = store
        self.check()

    def epoch(self, store: Store) -> None:
        run = store.run
        if run is None or store.catalog.run(run.run + 1) is not None:
            store.run = store.committer = None
            return
        parent = store.catalog.newest()
        epoch = 0 if parent is None else parent.epoch + 1
        output = self.staged(epoch, run)
        before = None if parent is None else given(parent, "out")
        history = () if parent is None else parent.history
        if not history or history[-1][1] != run.token:
            history = joined((*history, (epoch, run.token)))
        made = msgspec.structs.replace(
            manifest(epoch),
            run=run.run,
            parent=None if parent is None else parent.epoch,
            history=history,
            outputs={"out": msgspec.structs.replace(output, before=before)},
        )
        rows = Counter(store.expected)
        rows.update(t["id"] for t in output.tokens)
        assert store.catalog.decide(made)
        store.rows[epoch] = rows
        self.commit(store, made)
        self.check()

    def staged(self, epoch: int, run: Run) -> SinkOutput:
        """Stage a row in each of two files."""
        tokens: list[Any] = []
        for _ in range(2):
            self.count += 1
            at = StagePoint(
                storage=ObjectStorage("s3://none"),
                folder="none",
                epoch=epoch,
                attempt=f"a{self.count}",
                token=run.token,
            )
            table = pa.table([[self.count]], schema=_SCHEMA.to_arrow())
            stager = self.sink.stager(self.use)
            tokens += [{**t, "id": self.count} for t in stager.stage(table, at)]
        return SinkOutput(
            kind="files",
            tokens=tuple(tokens),
            rows=2,
            run=run.token,
            place=self.sink.path,
        )

    def commit(self, store: Store, made: Manifest) -> None:
        assert store.committer is not None
        assert store.run is not None
        try:
            store.committer.commit(made.epoch, made.outputs.get("out", _NOTHING))
        except (CommitRejectedError, FencedError):
            store.run = store.committer = None
            raise
        status = status_of(made, updated_us=1, state="running", committed=made.epoch)
        storage, paths = store.catalog.storage, store.catalog.paths
        storage.put(paths.status, seal(status))

    def run(self, store: Store, epochs: int) -> None:
        """Start a store, and run some epochs."""
        self.start(store)
        for _ in range(epochs):
            self.epoch(store)

    def restore(self, store: Store, target: int) -> None:
        """Go back to an epoch."""
        store.run = store.committer = None
        # Its number is the next; whether it was decided is found in the store.
        store.rows[store.catalog.epochs()[-1] + 1] = store.rows[target]
        rl.stores.restore(f"{store.name}@{target}")

    def backup(self, store: Store) -> Backup:
        """Copy the files of a store."""
        return dict(self.machine.objects[store.name]), dict(store.rows)

    def put_back(self, store: Store, backup: Backup) -> None:
        """Replace the files of a store."""
        files, rows = backup
        store.run = store.committer = None
        self.machine.objects[store.name] = dict(files)
        store.rows = dict(rows)

    def copy(self, backup: Backup) -> Store:
        """Make another store of a backup."""
        store = Store(f"s3://store-{len(self.stores)}")
        self.put_back(store, backup)
        self.stores.append(store)
        return store

    def check(self) -> None:
        """Compare what is in sight with the store that has just committed."""
        left, self.machine.left = self.machine.left, None
        if self.owner is not None:
            expected = self.owner.expected
            assert self.in_sight() == expected
            if self.is_object:
                assert self.listed() == expected
        self.machine.left = left

    def in_sight(self) -> Counter[int]:
        if self.is_object:
            out = self.machine.objects["s3://out"]
            contents = [out[p] for p in out if p.startswith("epoch=")]
        else:
            paths = Path(self.sink.path).glob("epoch=*/*")
            contents = [p.read_bytes() for p in paths]
        return Counter(json.loads(content)["id"] for content in contents)

    def listed(self) -> Counter[int]:
        out = self.machine.objects["s3://out"]
        listings = [json.loads(out[p]) for p in out if p.startswith("_riverlock/0")]
        files = [file["path"] for each in listings for file in each["files"]]
        return Counter(json.loads(out[path])["id"] for path in files)
