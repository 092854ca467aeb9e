"""State files: Parquet, sorted by entry id, immutable, checksummed (format §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import SnapshotCorruptedError, StorageNotFoundError
from riverlock.snapshot.format.parents import locate
from riverlock.snapshot.format.parted_files import read_footer
from riverlock.snapshot.format.parts import (
    ROWS_PER_PART,
    SHARED,
    encode_parts,
    group_span,
    read_parts,
)
from riverlock.snapshot.format.records import StateFile
from riverlock.snapshot.format.sealed import checksum

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.snapshot.format.records import Footer
    from riverlock.storage.base import Storage

__all__ = [
    "COMPRESSED",
    "encode_table",
    "live",
    "merge_tables",
    "read_file",
    "read_table",
    "table_of",
    "variables_in",
    "write_state_file",
]

# zstd at level 1 costs less than the disk it saves; dictionaries only where values
# repeat (profile in docs/performance.md).
COMPRESSED = {"compression": "zstd", "compression_level": 1}


def encode_table(table: pa.Table, **options: Any) -> bytes:
    """Return a table as Parquet bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{**COMPRESSED, **options})
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def write_state_file(  # noqa: PLR0913 - the parts of the record
    storage: Storage,
    path: str,
    table: pa.Table,
    *,
    epochs: tuple[int, int],
    groups: tuple[int, int],
    shared: bool = False,
) -> StateFile:
    """Write a sorted table of entries durably; return the record that refers to it.

    ``shared`` makes every task read it, even if no broadcast entry is left in it.
    """
    import pyarrow.compute as pc

    data, footer = _encoded(table)
    storage.put(path, data)
    has_shared = bool(pc.any(pc.is_null(table["key_group"])).as_py())
    return StateFile(
        path=path,
        first_epoch=epochs[0],
        last_epoch=epochs[1],
        first_group=groups[0],
        end_group=groups[1],
        rows=table.num_rows,
        bytes=len(data),
        checksum=checksum(data),
        deletes=pc.sum(table["deleted"]).as_py() or 0,
        shared=shared or has_shared,
        footer=footer,
    )


def _encoded(table: pa.Table) -> tuple[bytes, Footer | None]:
    """Return the bytes of a state file; a large one is in parts."""
    options: dict[str, Any] = {**COMPRESSED, "use_dictionary": ["entry", "variable"]}
    if table.num_rows > ROWS_PER_PART:
        return encode_parts(table, **options)
    return encode_table(table, **options), None


def read_file(storage: Storage, path: str, *, size: int, expected: str) -> bytes:
    """Return the bytes of a referenced file after checking them.

    Raises:
        SnapshotCorruptedError: The file is missing, or is not what was written.
    """
    home, inner = locate(storage, path)
    try:
        data = home.get(inner)
    except StorageNotFoundError as error:
        where = "" if home is storage else f" in {home.uri}"
        raise SnapshotCorruptedError(
            path, expected=f"{size} bytes", found=f"no such file{where}"
        ) from error
    found = checksum(data)
    if len(data) != size or found != expected:
        raise SnapshotCorruptedError(
            path,
            expected=f"{size} bytes with checksum {expected}",
            found=f"{len(data)} bytes with checksum {found}",
        )
    return data


def table_of(data: bytes) -> pa.Table:
    """Return the rows of a Parquet file, read without a thread of Arrow's.

    There is a task per core already, and Arrow 26 now and then aborts a process that
    ends soon after such a thread has started. `pyarrow.parquet.read_table` starts one
    even when told not to use threads: it reads ahead through Arrow's datasets.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    return opened.read(use_threads=False)


def read_table(
    storage: Storage, file: StateFile, groups: tuple[int, int] | None = None
) -> pa.Table:
    """Return the entries of a state file, optionally only those of some key groups.

    Entries without a key group (broadcast state) are always included. From a file in
    parts only those parts are read that can hold such entries.

    Raises:
        SnapshotCorruptedError: The file is missing, or is not what was written.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    is_whole = groups is None or (
        groups[0] <= file.first_group and file.end_group <= groups[1]
    )
    if groups is not None and not is_whole and file.footer is not None:
        spans = [group_span(*groups), *([SHARED] if file.shared else [])]
        return pa.concat_tables(read_parts(storage, file, span) for span in spans)
    data = read_file(storage, file.path, size=file.bytes, expected=file.checksum)
    table = table_of(data)
    if groups is None or is_whole:
        return table
    group = table["key_group"]
    inside = pc.and_(pc.greater_equal(group, groups[0]), pc.less(group, groups[1]))
    return table.filter(pc.or_kleene(inside, pc.is_null(group)))


def variables_in(storage: Storage, file: StateFile) -> frozenset[str]:
    """Return the variables for which a state file has a column, whoever declared them.

    Raises:
        SnapshotCorruptedError: The file is missing, or is not what was written.
    """
    if file.footer is not None:
        schema = read_footer(storage, file).schema.to_arrow_schema()
    else:
        schema = read_table(storage, file).schema
    place = schema.get_field_index("data")
    return (
        frozenset(f.name for f in schema.field(place).type)
        if place >= 0
        else frozenset()
    )


def merge_tables(tables: list[pa.Table]) -> pa.Table:
    """Return the newest entry of each id, sorted by id; tables are oldest first.

    Tombstones are kept: whether they may be dropped depends on what lies below.
    """
    import numpy as np
    import pyarrow as pa

    table = pa.concat_tables(tables, promote_options="permissive")
    if table.num_rows == 0:
        return table
    places = pa.array(np.arange(table.num_rows))
    ids = pa.table({"id": table["id"], "place": places})
    newest = ids.group_by("id").aggregate([("place", "max")])
    return table.take(newest.sort_by("id")["place_max"])


def live(table: pa.Table, now_us: int) -> pa.Table:
    """Return the entries that are neither deleted nor expired at an instant."""
    import pyarrow as pa
    import pyarrow.compute as pc

    now = pa.scalar(now_us, pa.timestamp("us", tz="UTC"))
    expired = pc.is_in(pc.less_equal(table["expires_at"], now), pa.array([True]))
    return table.filter(pc.and_not(pc.invert(table["deleted"]), expired))
