"""Rows that tasks staged as Parquet in the store, read again at the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.json_rows import plain_rows
from riverlock.snapshot.format.state_files import read_file, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = ["numbered_rows", "read_staged", "staged_table", "staged_tables"]


def staged_tables(storage: Storage, output: SinkOutput) -> Iterator[pa.Table]:
    """Read the files behind a sink's tokens, one after the other, in their order.

    An epoch need not fit into the driver; a task's share of it does.

    Raises:
        SnapshotCorruptedError: A staged file is missing or altered.
    """
    for token in output.tokens:
        yield staged_table(storage, token)


def staged_table(storage: Storage, token: dict[str, Any]) -> pa.Table:
    """Read the file behind one token.

    Raises:
        SnapshotCorruptedError: It is missing or altered.
    """
    data = read_file(
        storage, token["path"], size=token["bytes"], expected=token["checksum"]
    )
    return table_of(data)


def read_staged(storage: Storage, output: SinkOutput) -> pa.Table | None:
    """Return all rows behind a sink's tokens, in their order; None if there are none.

    Raises:
        SnapshotCorruptedError: A staged file is missing or altered.
    """
    import pyarrow as pa

    tables = list(staged_tables(storage, output))
    return pa.concat_tables(tables) if tables else None


def numbered_rows(
    storage: Storage, output: SinkOutput
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read rows with their number in the epoch, which is the same at every attempt.

    Raises:
        SnapshotCorruptedError: A staged file is missing or altered.
    """
    number = 0
    for table in staged_tables(storage, output):
        for row in plain_rows(table):
            yield number, row
            number += 1
