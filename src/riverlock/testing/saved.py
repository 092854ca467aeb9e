"""What survives a crash of an operator under test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.snapshot.format.state_files import encode_table, table_of

if TYPE_CHECKING:
    from riverlock.state.layout import StateLayout

__all__ = ["Saved"]


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What survives a restart: everything a process declared to remember."""

    epoch: int
    now_us: int
    watermark_us: int | None
    changes: tuple[bytes, ...] = field(repr=False)  # Parquet, oldest first
    parameters: dict[str, Any] = field(default_factory=dict)  # that were set

    def declared(self, layout: StateLayout) -> list[bytes]:
        """Return the changes of what a process declares: the rest is gone for good."""
        tables = (_declared(table_of(raw), layout) for raw in self.changes)
        return [encode_table(table) for table in tables]


def _declared(changes: pa.Table, layout: StateLayout) -> pa.Table:
    """Return changes without those of variables that are not declared any more."""
    named = [v is None or v in layout.specs for v in changes["variable"].to_pylist()]
    changes = changes.filter(pa.array(named, pa.bool_()))
    place = changes.schema.get_field_index("data")
    if place < 0:
        return changes
    data = changes["data"].combine_chunks()
    kept = [f for f in data.type if f.name in layout.specs]
    if not kept:
        return changes.remove_column(place)
    columns = [pc.struct_field(data, f.name) for f in kept]
    fresh = pa.StructArray.from_arrays(columns, fields=kept, mask=data.is_null())
    return changes.set_column(place, "data", fresh)
