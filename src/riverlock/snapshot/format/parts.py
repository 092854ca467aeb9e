"""State files in parts, so that a look-up reads a part and not the whole (format §5.6).

A part is a row group of the Parquet file. The footer lists the checksums of all parts,
and the manifest has the checksum of the footer: what is read is verified, whatever is
not read.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import SnapshotCorruptedError, StorageNotFoundError
from riverlock.snapshot.format.parents import locate
from riverlock.snapshot.format.records import Footer, Record
from riverlock.snapshot.format.sealed import checksum

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.snapshot.format.records import StateFile
    from riverlock.storage.base import Storage

__all__ = [
    "ROWS_PER_PART",
    "SHARED",
    "IdSpan",
    "encode_parts",
    "group_span",
    "read_footer",
    "read_parts",
]

# A file with more rows than this is written in parts, of at least this many rows.
ROWS_PER_PART = 8_192
# A look-up reads the footer, which grows with the number of parts, and one part. Both
# are smallest together where a part has sqrt(rows * _FOOTER_ROWS) rows: what the footer
# says of a part takes as much as this many rows do.
_FOOTER_ROWS = 75
_PARTS = b"riverlock.parts"
# Length of the metadata and the magic number, at the end of a Parquet file.
_TRAILER = 8


class Part(Record, frozen=True, array_like=True):
    """Where a row group is, and what it must be."""

    offset: int
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True)
class IdSpan:
    """A span of entry ids; without an end it reaches to the last of them."""

    first: bytes
    end: bytes | None

    def meets(self, low: bytes, high: bytes) -> bool:
        """Whether ids from low to high, both inclusive, may be in it."""
        return high >= self.first and (self.end is None or low < self.end)

    def meets_file(self, file: StateFile) -> bool:
        """Whether a file may have entries of it, by its key groups."""
        low = file.first_group.to_bytes(2, "big")
        # The end is exclusive: all its ids sort after those of the file.
        high = file.end_group.to_bytes(2, "big")
        is_after = self.end is not None and self.end <= low
        return not (is_after or self.first >= high) or (file.shared and self._is_shared)

    @property
    def _is_shared(self) -> bool:
        return self.end is None or self.end > b"\xff\xff"

    def of(self, table: pa.Table) -> pa.Table:
        """Return the entries of a table that are in it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ids = table["id"]
        inside = pc.greater_equal(ids, pa.scalar(self.first, pa.binary()))
        if self.end is not None:
            before = pc.less(ids, pa.scalar(self.end, pa.binary()))
            inside = pc.and_(inside, before)
        return table.filter(inside)


# Broadcast entries: their ids begin with a group that no key has (format §5.1).
SHARED = IdSpan(b"\xff\xff", None)


def group_span(first: int, end: int) -> IdSpan:
    """Return the ids of a range of key groups, the end exclusive."""
    return IdSpan(first.to_bytes(2, "big"), end.to_bytes(2, "big"))


def encode_parts(table: pa.Table, **options: Any) -> tuple[bytes, Footer]:
    """Return a sorted table of entries as Parquet bytes in parts, and their footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = max(ROWS_PER_PART, math.isqrt(table.num_rows * _FOOTER_ROWS))
    written = io.BytesIO()
    parts: list[Part] = []
    # Of statistics only those of ids are used, and every footer is read whole.
    writer = pq.ParquetWriter(
        pa.PythonFile(written), table.schema, write_statistics=["id"], **options
    )
    with writer:
        begin = written.tell()
        for at in range(0, table.num_rows, size):
            writer.write_table(table.slice(at, size), row_group_size=size)
            end = written.tell()
            raw = bytes(written.getbuffer()[begin:end])
            parts.append(Part(offset=begin, bytes=len(raw), checksum=checksum(raw)))
            begin = end
        writer.add_key_value_metadata({_PARTS: msgspec.json.encode(parts)})
    data = written.getvalue()
    length = _TRAILER + int.from_bytes(data[-_TRAILER:-4], "little")
    return data, Footer(bytes=length, checksum=checksum(data[-length:]))


def read_parts(storage: Storage, file: StateFile, span: IdSpan) -> pa.Table:
    """Return the entries of a file in a span of ids, reading only parts with some.

    Raises:
        SnapshotCorruptedError: The file is missing, or what was read of it is not
            what was written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = read_footer(storage, file)
    parts = msgspec.json.decode(metadata.metadata[_PARTS], type=list[Part])
    wanted = [n for n in range(len(parts)) if _may_hold(metadata.row_group(n), span)]
    piece = _Piece(file.bytes)
    # The parts of a span lie side by side, so one read serves them all.
    if wanted:
        first, last = parts[wanted[0]], parts[wanted[-1]]
        size = last.offset + last.bytes - first.offset
        data = _read(storage, file, first.offset, size)
        for part in parts[wanted[0] : wanted[-1] + 1]:
            at = part.offset - first.offset
            _check(file, part, data[at : at + part.bytes])
        piece = _Piece(file.bytes, first.offset, data)
    opened = pq.ParquetFile(
        pa.PythonFile(piece, mode="r"), metadata=metadata, pre_buffer=False
    )
    return span.of(opened.read_row_groups(wanted, use_threads=False))


def read_footer(storage: Storage, file: StateFile) -> Any:
    """Return the Parquet metadata of a file in parts, reading nothing else of it.

    Raises:
        SnapshotCorruptedError: The file is missing, or its footer is not what was
            written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    footer = file.footer
    assert footer is not None
    start = file.bytes - footer.bytes
    tail = _read(storage, file, start, footer.bytes)
    _check(file, Part(offset=start, bytes=footer.bytes, checksum=footer.checksum), tail)
    return pq.read_metadata(pa.BufferReader(tail))


def _may_hold(row_group: Any, span: IdSpan) -> bool:
    statistics = row_group.column(0).statistics  # of the ids: the first column
    return statistics is None or span.meets(statistics.min, statistics.max)


def _read(storage: Storage, file: StateFile, start: int, size: int) -> bytes:
    home, inner = locate(storage, file.path)
    try:
        return home.get_range(inner, start, size)
    except StorageNotFoundError as error:
        raise SnapshotCorruptedError(
            file.path, expected=f"{file.bytes} bytes", found="no such file"
        ) from error


def _check(file: StateFile, part: Part, data: bytes) -> None:
    found = checksum(data)
    if found != part.checksum:
        raise SnapshotCorruptedError(
            file.path,
            expected=f"{part.bytes} bytes from byte {part.offset} with checksum "
            f"{part.checksum}",
            found=f"{len(data)} bytes with checksum {found}",
        )


class _Piece(io.RawIOBase):
    """A file of which one piece is known; the rest is never asked for."""

    def __init__(self, size: int, start: int = 0, data: bytes = b"") -> None:
        super().__init__()
        self._size, self._start, self._data = size, start, data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = base[whence] + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        begin = self._at - self._start
        assert begin >= 0
        found = self._data[begin : len(self._data) if size < 0 else begin + size]
        self._at += len(found)
        return found
