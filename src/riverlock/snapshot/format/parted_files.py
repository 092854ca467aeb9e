"""Parquet files in parts, so that a reader takes some of them and not the whole.

A part is a row group. The footer lists the checksums of all parts, and whoever refers
to the file has the checksum of the footer: what is read is verified, whatever is not
read (format §5.6).
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from riverlock.core.errors import SnapshotCorruptedError, StorageNotFoundError
from riverlock.core.values.known_types import known
from riverlock.snapshot.format.parents import locate
from riverlock.snapshot.format.records import Footer, Record
from riverlock.snapshot.format.sealed import checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from riverlock.storage.base import Storage

__all__ = ["PartedFile", "encode_parted", "read_footer", "read_row_groups"]

_PARTS = b"riverlock.parts"
# Length of the metadata and the magic number, at the end of a Parquet file.
_TRAILER = 8


class PartedFile(Protocol):
    """What refers to a file in parts."""

    @property
    def path(self) -> str:
        """Where it is, below the store."""
        ...

    @property
    def bytes(self) -> int:
        """How long it is."""
        ...

    @property
    def footer(self) -> Footer | None:
        """Its footer; None: it is in one part."""
        ...


class Part(Record, frozen=True, array_like=True):
    """Where a row group is, and what it must be."""

    offset: int
    bytes: int
    checksum: str


def encode_parted(
    parts: Iterable[pa.Table], schema: pa.Schema, **options: Any
) -> tuple[bytes, Footer]:
    """Return tables as the parts of a Parquet file: its bytes, and its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    written = io.BytesIO()
    found: list[Part] = []
    writer = pq.ParquetWriter(pa.PythonFile(written), schema, **options)
    with writer:
        begin = written.tell()
        for table in parts:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            end = written.tell()
            raw = bytes(written.getbuffer()[begin:end])
            found.append(Part(offset=begin, bytes=len(raw), checksum=checksum(raw)))
            begin = end
        writer.add_key_value_metadata({_PARTS: msgspec.json.encode(found)})
    data = written.getvalue()
    length = _TRAILER + int.from_bytes(data[-_TRAILER:-4], "little")
    return data, Footer(bytes=length, checksum=checksum(data[-length:]))


def read_footer(storage: Storage, file: PartedFile) -> Any:
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


def read_row_groups(
    storage: Storage, file: PartedFile, metadata: Any, wanted: Sequence[int]
) -> pa.Table:
    """Return the rows of some parts, which lie side by side, in one read.

    Args:
        storage: The store that refers to the file.
        file: The file.
        metadata: What ``read_footer`` has returned of it.
        wanted: Numbers of row groups, in order; there may be none.

    Raises:
        SnapshotCorruptedError: The file is missing, or what was read of it is not
            what was written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = msgspec.json.decode(metadata.metadata[_PARTS], type=known(list[Part]))
    piece = _Piece(file.bytes)
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
    return opened.read_row_groups(wanted, use_threads=False)


def _read(storage: Storage, file: PartedFile, start: int, size: int) -> bytes:
    home, inner = locate(storage, file.path)
    try:
        return home.get_range(inner, start, size)
    except StorageNotFoundError as error:
        raise SnapshotCorruptedError(
            file.path, expected=f"{file.bytes} bytes", found="no such file"
        ) from error


def _check(file: PartedFile, part: Part, data: bytes) -> None:
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
