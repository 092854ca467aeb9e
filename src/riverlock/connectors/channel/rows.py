"""Rows in the files of a channel: those of a file, or those of one task's keys."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riverlock.core.errors import SnapshotCorruptedError, SourceError
from riverlock.core.hidden_columns import SEQ
from riverlock.snapshot.channel_files import as_sent, read_groups
from riverlock.snapshot.format.parents import locate
from riverlock.snapshot.format.sealed import checksum
from riverlock.state.keys import group_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.channel_files import ChannelFile
    from riverlock.storage.base import Storage

__all__ = ["Shares", "file_rows"]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """A range of a channel, of which each task reads the rows of its key groups.

    Attributes:
        storage: The store.
        uid: Who reads.
        columns: The columns of the rows.
        files: The files of the range, in their order.
        tasks: How many tasks share the key groups.
        key_groups: How many there are.
    """

    storage: Storage
    uid: str
    columns: pa.Schema
    files: tuple[ChannelFile, ...]
    tasks: int
    key_groups: int

    def read(self, task: int) -> Iterator[tuple[int, pa.Table, np.ndarray]]:
        """Yield the rows of a task by file: its number, rows, and places among all.

        Raises:
            SourceError: A file is not what the manifest says.
        """
        groups = group_range(task, self.tasks, self.key_groups)
        for number, file in enumerate(self.files):
            try:
                table, places = read_groups(self.storage, file, groups)
            except SnapshotCorruptedError as error:
                raise _damaged(self.uid, file.path) from error
            if table.num_rows:
                yield number, _with_columns(table, self.columns, self.uid, file), places

    def table(self, task: int) -> pa.Table:
        """Return the rows of a task, with their positions in the range.

        Raises:
            SourceError: A file is not what the manifest says.
        """
        firsts = np.cumsum([0, *(file.rows for file in self.files)])
        empty = self.columns.append(pa.field(SEQ, pa.int64())).empty_table()
        found = [
            rows.append_column(SEQ, pa.array(places.astype(np.int64) + firsts[number]))
            for number, rows, places in self.read(task)
        ]
        return pa.concat_tables([empty, *found])


def _damaged(uid: str, path: str) -> SourceError:
    return SourceError(
        uid,
        what=f"{path} is damaged: its checksum is not the manifest's",
        hint="nothing was changed; put the file back from a backup",
    )


def file_rows(
    storage: Storage, file: ChannelFile, uid: str, columns: pa.Schema
) -> pa.Table:
    """Return the rows of a file of a channel, as they were sent.

    Raises:
        SourceError: The file is not what the manifest says.
    """
    home, path = locate(storage, file.path)
    data = home.get(path)
    if checksum(data) != file.checksum:
        raise _damaged(uid, file.path)
    found = pq.read_table(io.BytesIO(data), use_threads=False)
    return _with_columns(as_sent(found), columns, uid, file)


def _with_columns(
    found: pa.Table, columns: pa.Schema, uid: str, file: ChannelFile
) -> pa.Table:
    missing = [name for name in columns.names if name not in found.column_names]
    if missing:
        raise SourceError(
            uid,
            what=f"{file.path} has no column {', '.join(missing)}: the region that"
            " wrote it runs other code by now",
            hint="nothing was changed; start this region again, with that code",
        )
    return pa.table([found[f.name].cast(f.type) for f in columns], schema=columns)
