"""Is every listed snapshot whole? Reads everything, trusts nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.core.errors import RiverlockError, SnapshotCorruptedError
from riverlock.snapshot.files import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.records import StateFile

__all__ = ["EpochReport", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """What is wrong with an epoch; whole if nothing is."""

    epoch: int
    files: int
    bytes: int
    problems: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the epoch can be restored."""
        return not self.problems


def verify(catalog: Catalog) -> Iterator[EpochReport]:
    """Check each retained epoch: manifest, files present, checksums right."""
    catalog.flow()
    seen: dict[str, str | None] = {}
    for epoch in catalog.epochs():
        try:
            manifest = catalog.manifest(epoch)
        except RiverlockError as error:
            yield EpochReport(epoch=epoch, files=0, bytes=0, problems=(str(error),))
            continue
        files = [f for s in manifest.operators.values() for f in s.files]
        for file in files:
            if file.path not in seen:
                seen[file.path] = _problem(catalog, file)
        problems = tuple(p for f in files if (p := seen[f.path]) is not None)
        size = sum(f.bytes for f in files)
        yield EpochReport(epoch=epoch, files=len(files), bytes=size, problems=problems)


def _problem(catalog: Catalog, file: StateFile) -> str | None:
    try:
        read_file(catalog.storage, file.path, size=file.bytes, expected=file.checksum)
    except SnapshotCorruptedError as error:
        return error.message
    return None
