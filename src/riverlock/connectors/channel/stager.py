"""The tasks' part of a channel: one file of rows, with their event times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.hidden_columns import TIME
from riverlock.snapshot.channel_files import ChannelFile, encode_rows
from riverlock.snapshot.format.sealed import checksum
from riverlock.state.columns.key_hashes import key_groups_of

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.connectors.base.stager import StagePoint
    from riverlock.core.types import Schema

__all__ = ["ChannelStager"]


@dataclass(frozen=True, kw_only=True)
class ChannelStager:
    """Writes rows to where the region keeps what others read.

    Attributes:
        channel: The name of the channel.
        keys: By which columns its reader is keyed at once; None: by none.
        key_groups: How many key groups the flow has.
    """

    channel: str
    keys: Schema | None = None
    key_groups: int = 1
    # Hidden columns that it is handed besides those that users see.
    carried = (TIME,)

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Write one file."""
        path, groups = at.channel_file(self.channel), None
        if self.keys is not None:
            groups = key_groups_of(table, self.keys, self.key_groups)
        data, footer = encode_rows(table, groups, self.key_groups)
        at.storage.put(path, data)
        file = ChannelFile(
            path=path,
            rows=table.num_rows,
            bytes=len(data),
            checksum=checksum(data),
            footer=footer,
        )
        return [file.token]
