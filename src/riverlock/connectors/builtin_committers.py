"""Committers of the built-in sinks that need no Spark."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.staged_rows import read_staged
from riverlock.connectors.files.listing import (
    check_tokens,
    epoch_folder,
    is_listed,
    is_owned,
    is_withdrawal,
    listing,
    listing_path,
    named,
    own,
    staged_gone,
)
from riverlock.connectors.files.past_epochs import (
    check_claim,
    check_kept,
    check_listed,
    take,
)
from riverlock.connectors.files.places import nobodys_home
from riverlock.connectors.files.staged_files import sweep_staged
from riverlock.connectors.withdrawal import withdraw_all
from riverlock.core.errors import (
    CommitRejectedError,
    SinkError,
)
from riverlock.core.values.arrow_values import python_values
from riverlock.storage.local import LocalStorage
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.files.sink import FileSink
    from riverlock.sinks import ConsoleSink, MemorySink
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = ["ConsoleCommitter", "FileCommitter", "MemoryCommitter"]

_BUILDING = "_riverlock/building"
_STALE = timedelta(hours=1)


@dataclass
class FileCommitter:
    """Makes an epoch's folder appear by one rename."""

    sink: FileSink
    guarantee: str = "exactly once: each epoch appears whole, by one rename"
    _mine: dict[str, str] = field(default_factory=dict)
    _owner: Owner | None = None
    # The newest epoch that this run has seen in the directory.
    _seen: int | None = None

    def to_make(self) -> tuple[str, ...]:
        """Return the directory, if it does not exist."""
        is_there = Path(self.sink.path).exists()
        return () if is_there else (f"directory {self.sink.path}",)

    def open(self, owner: Owner) -> None:
        """Take the directory for this run; remove what a crash left half built.

        Epochs that this store has not decided go out of sight.

        Raises:
            InvalidConfigError: The directory belongs to another flow or store.
            FencedError: A newer run has it.
            CommitRejectedError: It lacks epochs that it had.
        """
        check_kept(self.sink.path, owner)
        root = self._root()
        self._mine, self._owner = own(root, owner, self.sink.path), owner
        take(self.sink.path, owner)
        _clear(Path(self.sink.path))
        # Only a run that is fenced by now can still be writing these.
        root.forget_temporaries(datetime.now(UTC))
        if owner.past.newest is not None:
            # All before it are committed; tasks that were overtaken staged these late.
            self._sweep(Path(self.sink.path), owner.past.newest - 1)

    def _root(self) -> LocalStorage:
        path = Path(self.sink.path)
        path.mkdir(parents=True, exist_ok=True)
        return LocalStorage(path)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Rename the epoch's files into place, then list them in a manifest."""
        if not output.tokens:
            return
        if is_withdrawal(output.tokens):
            assert self._owner is not None
            withdraw_all(self.sink.path, output.tokens, self._owner)
            self._seen = None
            return
        if self._is_in_object_store(output.tokens[0]):
            from riverlock.connectors.files.object_files import ObjectFileCommitter

            ObjectFileCommitter(self.sink, mine=self._mine).commit(epoch, output)
            return
        check_tokens(self.sink.path, epoch, output.tokens)
        path = self._home(epoch, output.tokens)
        self._check_claim(path)
        self._check_seen()
        root = LocalStorage(path)
        # Committed before, readers may even have taken the folder away since.
        if not is_listed(root, epoch, output, self._owner):
            if not _is_built(path / epoch_folder(epoch), output.tokens):
                self._build(path, epoch, output.tokens)
                self._check_claim(path)
            root.put_if_absent(
                listing_path(epoch), listing(epoch, output.tokens, output.run)
            )
            is_listed(root, epoch, output, self._owner)
        if path == Path(self.sink.path):
            self._seen = epoch
        self._sweep(path, epoch, output.run)

    def _check_claim(self, path: Path) -> None:
        """Stop if another run has taken the directory; do not take a former one."""
        if self._owner is not None and path == Path(self.sink.path):
            check_claim(LocalStorage(path), self._owner)

    def _check_seen(self) -> None:
        """Stop if the directory went back under this run, or was removed."""
        if self._owner is not None and self._seen is not None:
            check_listed(self.sink.path, self._seen, self._owner)

    def _is_in_object_store(self, token: dict[str, Any]) -> bool:
        """Tell whether an epoch was staged in an object store that we still have."""
        root = token.get("root", "")
        return "://" in root and is_owned(open_storage(root), self._mine)

    def _home(self, epoch: int, tokens: tuple[Any, ...]) -> Path:
        """Return the directory that an epoch was decided to go to.

        If the sink has another one since, the epoch is completed in the old one, unless
        that was moved or copied here.
        """
        here = Path(self.sink.path)
        meant = Path(tokens[0].get("root", here))
        if meant == here or _holds(here, epoch, tokens):
            self._root()
            return here
        if not is_owned(LocalStorage(meant), self._mine):
            way_out = (
                "put it back, or give up the rows of this epoch by creating the file"
                f" {here / listing_path(epoch)}"
            )
            what = f"it was decided to go to {meant}, which no longer exists"
            raise CommitRejectedError(
                self.sink.path, epoch=epoch, what=f"{what}; {way_out}"
            )
        _clear(meant)
        return meant

    def _build(self, path: Path, epoch: int, tokens: tuple[Any, ...]) -> None:
        """Link the files aside, then rename the folder, whole or not at all.

        A newer run removes folders under construction, for good: they are made once,
        never again, so a run that slept meanwhile cannot continue with a part.
        """
        (path / _BUILDING).mkdir(parents=True, exist_ok=True)
        building = path / _BUILDING / uuid.uuid4().hex
        wanted = named(tokens)
        try:
            building.mkdir()
            for name, token in wanted.items():
                _make_folders(building, name)
                os.link(path / token["staged"], building / name)
            for folder in {t.parent for t in building.rglob("*")} | {building}:
                _sync(folder)
            _check_whole(building, wanted)
            if not _rename(building, path / epoch_folder(epoch)) and _has_others(
                path / epoch_folder(epoch), tokens
            ):
                what = "a run of another copy of the store builds it as well"
                raise SinkError(self.sink.path, epoch=epoch, what=what)
        except FileNotFoundError as error:
            raise self._missing(path, epoch, tokens) from error
        _sync(path)

    def _missing(self, path: Path, epoch: int, tokens: tuple[Any, ...]) -> SinkError:
        """Return what it means that a file or folder did not exist."""
        gone = [t["staged"] for t in tokens if not (path / t["staged"]).exists()]
        if gone and not (path / listing_path(epoch)).exists():
            return staged_gone(str(path), epoch, gone[0])
        return SinkError(
            self.sink.path, epoch=epoch, what="another run removed its folder"
        )

    def _sweep(self, path: Path, epoch: int, *runs: str) -> None:
        """Remove staged files of this and earlier epochs: they are linked or dead."""
        sweep_staged(str(path), epoch, self._owner, *runs)
        # Workers that were killed leave these; no write takes so long.
        LocalStorage(path).forget_temporaries(datetime.now(UTC) - _STALE)


def _is_built(folder: Path, tokens: tuple[Any, ...]) -> bool:
    """Tell whether the folder of an epoch exists; move a foreign one out of sight.

    Another copy of the store may have died before it listed its files. Readers may have
    removed some of ours.
    """
    if not folder.exists():
        return False
    if not _has_others(folder, tokens):
        return True
    away = folder.parent / nobodys_home()
    away.mkdir(parents=True)
    folder.rename(away / folder.name)
    return False


def _has_others(folder: Path, tokens: tuple[Any, ...]) -> bool:
    """Tell whether a folder has files that were not decided for its epoch."""
    there = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return not set(there) <= set(named(tokens))


def _holds(path: Path, epoch: int, tokens: tuple[Any, ...]) -> bool:
    """Tell whether an epoch was committed or staged in a directory."""
    signs = (listing_path(epoch), epoch_folder(epoch), tokens[0]["staged"])
    return any((path / sign).exists() for sign in signs)


def _clear(path: Path) -> None:
    """Remove half-built folders in one step, so that nobody can finish them."""
    building = path / _BUILDING
    away = building.with_name(f"{building.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        building.rename(away)
    for left in building.parent.glob(f"{building.name}.*"):
        shutil.rmtree(left, ignore_errors=True)


def _make_folders(building: Path, name: str) -> None:
    """Make the folders of a file below ``building``, which must exist."""
    for folder in reversed(Path(name).parents[:-1]):
        (building / folder).mkdir(exist_ok=True)


def _check_whole(building: Path, names: Iterable[str]) -> None:
    there = {p.relative_to(building).as_posix() for p in building.rglob("*")}
    if missing := set(names) - there:
        raise FileNotFoundError(errno.ENOENT, "not linked", min(missing))


def _rename(building: Path, final: Path) -> bool:
    """Move a folder into its place; False if another run was faster."""
    try:
        building.rename(final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        shutil.rmtree(building, ignore_errors=True)
        return False
    return True


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass
class MemoryCommitter:
    """Puts rows into the sink object of this process."""

    sink: MemorySink
    storage: Storage
    # Rows of an epoch take the place of all before: mode ``complete``.
    replaces: bool = False
    guarantee: str = "exactly once within this process"
    _writer: tuple[str, str] = ("", "")

    def open(self, owner: Owner) -> None:
        """Forget epochs that the store has not decided: it was put back."""
        self._writer = (owner.flow, owner.sink)
        if owner.past.newest is not None:
            self._forget(after=owner.past.newest)

    def _forget(self, after: int = -1) -> None:
        for epoch, parts in self.sink.written.items():
            if epoch > after:
                parts.pop(self._writer, None)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Replace the rows of the epoch."""
        table = read_staged(self.storage, output)
        if output.replaces or (table is not None and self.replaces):
            self._forget()
        if table is not None:
            rows = list(zip(*map(python_values, table.columns), strict=True))
            self.sink.written.setdefault(epoch, {})[self._writer] = rows


@dataclass
class ConsoleCommitter:
    """Prints rows to standard output."""

    sink: ConsoleSink
    storage: Storage
    guarantee: str = "at least once: after a crash an epoch may be printed again"

    def open(self, owner: Owner) -> None:
        """Nothing to check."""

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Print the first rows of the epoch."""
        table = read_staged(self.storage, output)
        out = sys.stdout
        if table is None:
            if output.replaces:
                out.write(f"-- epoch {epoch}: 0 rows\n")
            return
        out.write(f"-- epoch {epoch}: {table.num_rows} rows\n")
        shown = table.slice(0, self.sink.rows)
        for row in zip(*map(python_values, shown.columns), strict=True):
            pairs = zip(shown.column_names, row, strict=True)
            out.write("  " + ", ".join(f"{k}={v}" for k, v in pairs) + "\n")
        if table.num_rows > self.sink.rows:
            out.write(f"  ... {table.num_rows - self.sink.rows} more\n")
        out.flush()
