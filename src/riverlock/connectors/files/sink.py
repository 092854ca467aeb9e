"""Files of a directory, or of an object store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.connectors.files.partitions import check_columns
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.keywords import told_keywords

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.builtin_stagers import FileStager
    from riverlock.storage.base import Storage

__all__ = ["FileSink", "files"]

_FORMATS = ("json", "csv", "parquet")


@dataclass(frozen=True, kw_only=True)
class FileSink:
    """Files of a directory; see ``files``."""

    path: str
    format: str
    partition_by: tuple[str, ...] = ()
    kind: str = "files"
    # As it was given; ``path`` is what it meant where the flow was built.
    given: str = ""

    @property
    def place(self) -> str:
        """Where it writes."""
        return self.path

    def stager(self, use: SinkUse) -> FileStager:
        """Return the object that stages files in their final form."""
        from riverlock.connectors.builtin_stagers import FileStager

        check_columns(use, self.partition_by)
        nested = [
            f.name
            for f in use.schema.fields
            if f.type.kind in ("array", "map", "struct")
        ]
        if self.format == "csv" and nested:
            raise InvalidFlowError(
                f"format csv of sink {use.uid!r}",
                expected="simple columns",
                found=f"nested columns {nested}",
                hint="write json or parquet",
            )
        return FileStager(
            path=self.path, format=self.format, partition_by=self.partition_by
        )

    def committer(self, use: SinkUse, storage: Storage) -> Committer:
        """Return the object that makes files appear, as the place allows."""
        del use, storage  # files are staged in their own place
        from riverlock.connectors.builtin_committers import FileCommitter
        from riverlock.connectors.files.object_files import ObjectFileCommitter

        return ObjectFileCommitter(self) if "://" in self.path else FileCommitter(self)


@told_keywords
def files(
    path: str,
    *,
    format: str,
    partition_by: str | Sequence[str] = (),
) -> FileSink:
    """Write files exactly once: each epoch appears whole, by one rename.

    The directory has one folder ``epoch=<n>`` per epoch, which Spark, DuckDB and others
    read as a partition, and ``_riverlock/<n>.json``, which lists its files. In an
    object store, which cannot rename, that listing appears last.

    Args:
        path: A directory, or an object store's URL such as ``s3://bucket/out``.
        format: json, csv or parquet.
        partition_by: Columns that become folders.

    Raises:
        InvalidConfigError: The format is unknown.
    """
    if format not in _FORMATS:
        raise InvalidConfigError(
            "files(format=)", expected=" or ".join(_FORMATS), found=repr(format)
        )
    by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return FileSink(path=place(path), format=format, partition_by=by, given=path)


def place(path: str) -> str:
    """Return where output goes, the same for driver and tasks.

    They need not share a working directory, nor a notion of "~".
    """
    return path if "://" in path else str(Path(path).expanduser().absolute())
