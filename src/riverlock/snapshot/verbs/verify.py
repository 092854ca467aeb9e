"""Is every listed snapshot whole? Reads everything, trusts nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import (
    RiverlockError,
    SnapshotCorruptedError,
    StorageNotFoundError,
)
from riverlock.core.ids import MAIN_REGION
from riverlock.snapshot.format.references import file_lists, source_lists, state_files
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.format.state_files import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import FileList, StateFile

__all__ = ["EpochReport", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """What is wrong with an epoch; whole if nothing is."""

    epoch: int
    files: int
    bytes: int
    problems: tuple[str, ...]
    region: str = MAIN_REGION

    @property
    def is_whole(self) -> bool:
        """Whether the epoch can be restored."""
        return not self.problems


def verify(catalog: Catalog) -> Iterator[EpochReport]:
    """Check each retained epoch: manifest, files present, checksums right.

    The lists that sources' offsets name are checked too; reports count state files.
    """
    flow = catalog.flow()
    seen: dict[str, str | None] = {}
    for epoch in catalog.epochs():
        try:
            stored = catalog.stored(epoch)
            broken = [p for e in file_lists(stored) if (p := _lost(catalog, e))]
            manifest = stored if broken else catalog.manifest(epoch)
        except RiverlockError as error:
            yield _report(catalog, epoch, (str(error),))
            continue
        if (manifest.epoch, manifest.flow) != (epoch, flow.id):
            problem = (
                f"{catalog.paths.manifest(epoch)} is epoch {manifest.epoch} of flow"
                f" {manifest.flow}: expected epoch {epoch} of {flow.id}"
            )
            yield _report(catalog, epoch, (problem,))
            continue
        if broken:
            yield _report(catalog, epoch, tuple(broken))
            continue
        files, lists = state_files(manifest), source_lists(manifest)
        for file in files:
            if file.path not in seen:
                seen[file.path] = _problem(catalog, file)
        for path in lists:
            if path not in seen:
                seen[path] = _list_problem(catalog, path)
        paths = [*(f.path for f in files), *lists]
        problems = tuple(p for path in paths if (p := seen[path]) is not None)
        size = sum(f.bytes for f in files)
        yield EpochReport(
            epoch=epoch,
            files=len(files),
            bytes=size,
            problems=problems,
            region=catalog.region,
        )


def _report(catalog: Catalog, epoch: int, problems: tuple[str, ...]) -> EpochReport:
    """Return what is wrong with a manifest, whose files are not known then."""
    return EpochReport(
        epoch=epoch, files=0, bytes=0, problems=problems, region=catalog.region
    )


def _problem(catalog: Catalog, file: StateFile) -> str | None:
    try:
        read_file(catalog.storage, file.path, size=file.bytes, expected=file.checksum)
    except SnapshotCorruptedError as error:
        return error.message
    return None


def _lost(catalog: Catalog, wanted: FileList) -> str | None:
    """Check a list of state files, whatever this process remembers of it."""
    try:
        size, expected = wanted.bytes, wanted.checksum
        read_file(catalog.storage, wanted.path, size=size, expected=expected)
    except SnapshotCorruptedError as error:
        return error.message
    return None


def _list_problem(catalog: Catalog, path: str) -> str | None:
    """Check a source's list, whose name holds its checksum."""
    try:
        found = checksum(catalog.storage.get(path))
    except StorageNotFoundError:
        return f"could not read {path}: expected a source's list, found no such file"
    if found in path:
        return None
    return f"could not read {path}: expected the checksum in its name, found {found}"
