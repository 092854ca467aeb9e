"""The tasks' part of a channel: one file of rows, with their event times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.hidden_columns import TIME
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.format.state_files import encode_table

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.connectors.base.stager import StagePoint

__all__ = ["ChannelStager"]


@dataclass(frozen=True, kw_only=True)
class ChannelStager:
    """Writes rows to where the region keeps what others read."""

    channel: str
    # Hidden columns that it is handed besides those that users see.
    carried = (TIME,)

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Write one file."""
        path = at.channel_file(self.channel)
        data = encode_table(table)
        at.storage.put(path, data)
        return [
            {
                "path": path,
                "rows": table.num_rows,
                "bytes": len(data),
                "checksum": checksum(data),
            }
        ]
