"""State files in parts, so that a look-up reads a part and not the whole (format §5.6).

Entries are sorted by their ids, so that the parts of a span of ids lie side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.snapshot.format.parted_files import (
    encode_parted,
    read_footer,
    read_row_groups,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.snapshot.format.records import Footer, StateFile
    from riverlock.storage.base import Storage

__all__ = [
    "ROWS_PER_PART",
    "SHARED",
    "IdSpan",
    "encode_parts",
    "group_span",
    "read_parts",
]

# A file with more rows than this is written in parts, of at least this many rows.
ROWS_PER_PART = 8_192
# A look-up reads the footer, which grows with the number of parts, and one part. Both
# are smallest together where a part has sqrt(rows * _FOOTER_ROWS) rows: what the footer
# says of a part takes as much as this many rows do.
_FOOTER_ROWS = 75


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
    size = max(ROWS_PER_PART, math.isqrt(table.num_rows * _FOOTER_ROWS))
    parts = (table.slice(at, size) for at in range(0, table.num_rows, size))
    # Of statistics only those of ids are used, and every footer is read whole.
    return encode_parted(parts, table.schema, write_statistics=["id"], **options)


def read_parts(storage: Storage, file: StateFile, span: IdSpan) -> pa.Table:
    """Return the entries of a file in a span of ids, reading only parts with some.

    Raises:
        SnapshotCorruptedError: The file is missing, or what was read of it is not
            what was written.
    """
    metadata = read_footer(storage, file)
    numbers = range(metadata.num_row_groups)
    wanted = [n for n in numbers if _may_hold(metadata.row_group(n), span)]
    return span.of(read_row_groups(storage, file, metadata, wanted))


def _may_hold(row_group: Any, span: IdSpan) -> bool:
    statistics = row_group.column(0).statistics  # of the ids: the first column
    return statistics is None or span.meets(statistics.min, statistics.max)
