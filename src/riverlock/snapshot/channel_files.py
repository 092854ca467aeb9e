"""Files of channels: rows as they were sent, or by key group for a keyed reader.

Rows that stand by key group carry the place that they had among those of their task:
whoever reads a file whole gets them as they were sent, and whoever reads a range of key
groups gets those of its rows in that order (format §7.3).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from riverlock.core.hidden_columns import GROUP, ROW
from riverlock.core.values.known_types import known
from riverlock.snapshot.format.parted_files import (
    encode_parted,
    read_footer,
    read_row_groups,
)
from riverlock.snapshot.format.records import Footer, Record
from riverlock.snapshot.format.state_files import (
    COMPRESSED,
    encode_table,
    read_file,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import pyarrow as pa

    from riverlock.storage.base import Storage

__all__ = [
    "ChannelFile",
    "as_sent",
    "channel_file",
    "encode_rows",
    "pays_by_group",
    "read_all",
    "read_groups",
]

# A part has at least this many rows. A reader takes the footer and some parts: both are
# smallest together where a part has sqrt(rows * _FOOTER_ROWS) rows, as in state files.
_ROWS_PER_PART: Final = 4_096
_FOOTER_ROWS: Final = 75
# Files of which each task reads its share; of more, each is read once and exchanged.
_MOST_FILES: Final = 64
# Rows of others that a task may read, whatever its own: less than an exchange costs.
_ROWS_ASIDE: Final = 16_384


class ChannelFile(Record, frozen=True):
    """What a manifest says of a file of a channel."""

    path: str
    rows: int
    bytes: int
    checksum: str
    # Of a file in several parts, each of some key groups.
    footer: Footer | None = None

    @property
    def token(self) -> dict[str, Any]:
        """The same as the manifest has it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def channel_file(token: Any) -> ChannelFile:
    """Return what a token of a manifest says."""
    return msgspec.convert(token, known(ChannelFile))


def encode_rows(
    table: pa.Table, groups: np.ndarray | None, key_groups: int
) -> tuple[bytes, Footer | None]:
    """Return the bytes of a file, and its footer if it is in parts.

    Args:
        table: The rows, as they are sent.
        groups: The key group of each; None: nobody asks for them by key group.
        key_groups: How many there are.
    """
    import numpy as np
    import pyarrow as pa

    if groups is None:
        return encode_table(table), None
    order = np.argsort(groups.astype(np.uint16), kind="stable")
    groups = groups[order].astype(np.int32)
    table = table.take(pa.array(order))
    table = table.append_column(GROUP, pa.array(groups))
    table = table.append_column(ROW, pa.array(order.astype(np.int32)))
    # A place that no other row has is in no dictionary.
    options: dict[str, Any] = {"use_dictionary": table.column_names[:-1]}
    parts = list(_parts(table, groups, key_groups))
    if len(parts) <= 1:
        return encode_table(table, **options), None
    options |= {**COMPRESSED, "write_statistics": [GROUP]}
    return encode_parted(parts, table.schema, **options)


def _parts(table: pa.Table, groups: np.ndarray, key_groups: int) -> Iterator[pa.Table]:
    """Yield the rows of equal spans of key groups, of those that have rows."""
    import numpy as np

    spans = _spans(len(groups), key_groups)
    ends = [-(-span * key_groups // spans) for span in range(spans + 1)]
    places = np.searchsorted(groups, ends).tolist()
    for first, end in pairwise(places):
        if first < end:
            yield table.slice(first, end - first)


def _spans(rows: int, key_groups: int) -> int:
    """Return how many equal spans of key groups the rows are divided by.

    A power of two: numbers of tasks often are.
    """
    size = max(_ROWS_PER_PART, math.isqrt(rows * _FOOTER_ROWS))
    most = max(1, min(rows // size, key_groups))
    return 1 << (most.bit_length() - 1)


def pays_by_group(rows: Iterable[int], *, tasks: int, key_groups: int) -> bool:
    """Tell whether tasks should read their own key groups of some files.

    A task reads whole parts, and asks for each file. Where that is too much, whoever
    reads each file once and exchanges its rows does less.

    Args:
        rows: How many rows each file has.
        tasks: How many tasks share the key groups.
        key_groups: How many there are.
    """
    sizes = list(rows)
    if len(sizes) > _MOST_FILES:
        return False
    read = 0
    for size in sizes:
        spans = _spans(size, key_groups)
        # Each task but the first may begin within a part.
        read += size + (0 if spans % tasks == 0 else size * (tasks - 1) // spans)
    return read <= 2 * sum(sizes) + tasks * _ROWS_ASIDE


def as_sent(table: pa.Table) -> pa.Table:
    """Return rows in the order in which they were sent, without what says it."""
    import numpy as np
    import pyarrow as pa

    if ROW not in table.column_names:
        return table
    places = table[ROW].to_numpy()
    if not np.all(places[1:] > places[:-1]):
        # The rows of a key group are in order: the sort finds runs, and merges them.
        table = table.take(pa.array(np.argsort(places, kind="stable")))
    return table.drop_columns([GROUP, ROW])


def read_all(storage: Storage, file: ChannelFile) -> pa.Table:
    """Return the rows of a file as they were sent.

    Raises:
        SnapshotCorruptedError: It is missing, or is not what was written.
    """
    data = read_file(storage, file.path, size=file.bytes, expected=file.checksum)
    return as_sent(table_of(data))


def read_groups(
    storage: Storage, file: ChannelFile, groups: tuple[int, int]
) -> tuple[pa.Table, np.ndarray]:
    """Return the rows of a range of key groups, and the place of each, ascending.

    Args:
        storage: The store that refers to the file.
        file: A file whose rows stand by key group.
        groups: The first key group, and the one after the last.

    Raises:
        SnapshotCorruptedError: The file is missing, or what was read of it is not
            what was written.
    """
    import numpy as np
    import pyarrow as pa

    table = _parts_of(storage, file, groups)
    found = table[GROUP].to_numpy()
    first, end = np.searchsorted(found, groups).tolist()
    table = table.slice(first, end - first)
    places = table[ROW].to_numpy()
    order = np.argsort(places, kind="stable")
    return table.take(pa.array(order)).drop_columns([GROUP, ROW]), places[order]


def _parts_of(storage: Storage, file: ChannelFile, groups: tuple[int, int]) -> pa.Table:
    if file.footer is None:
        data = read_file(storage, file.path, size=file.bytes, expected=file.checksum)
        return table_of(data)
    metadata = read_footer(storage, file)
    column = metadata.schema.names.index(GROUP)
    wanted = []
    for number in range(metadata.num_row_groups):
        span = metadata.row_group(number).column(column).statistics
        if span is None or (span.max >= groups[0] and span.min < groups[1]):
            wanted.append(number)
    return read_row_groups(storage, file, metadata, wanted)
