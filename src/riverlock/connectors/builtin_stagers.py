"""Stagers of the built-in sinks: PyArrow only, no Spark."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.json_rows import json_rows
from riverlock.connectors.files.partitions import check_names, folder_of, partitions
from riverlock.core.errors import SinkError
from riverlock.core.values.arrow_values import FarValue, first_far, text_column
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.format.state_files import encode_table
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from riverlock.connectors.base.stager import StagePoint

__all__ = ["FileStager", "TableStager"]

STAGED = "_riverlock/staged/"


@dataclass(frozen=True, kw_only=True)
class TableStager:
    """Stages rows as Parquet in the store, for sinks that the driver feeds."""

    sink: str
    # Whether the sink has only what Python can name: the years 1 to 9999.
    is_python: bool = False

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Write one file.

        Raises:
            SinkError: See ``check``.
        """
        self.check(table, at)
        path = f"{at.folder}/{at.attempt}-{self.sink}.parquet"
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

    def check(self, table: pa.Table, at: StagePoint) -> None:
        """Check that the sink can take all rows.

        Raises:
            SinkError: It could not take one once the epoch is decided.
        """
        far = first_far(table, table.column_names) if self.is_python else None
        if far is not None:
            raise _far_row(self.sink, far, at)


@dataclass(frozen=True, kw_only=True)
class FileStager:
    """Stages rows in their final form, in a hidden folder of the output directory."""

    path: str
    format: str
    partition_by: tuple[str, ...]

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Write one file per partition folder."""
        target = open_storage(self.path)
        tokens = []
        for number, (values, part) in enumerate(partitions(table, self.partition_by)):
            folder = folder_of(values)
            check_names(self.path, folder)
            name = f"part-{at.attempt}-{number:05d}.{self.format}"
            # By the run, so that no other copy of the store sweeps it.
            run = at.token or "unknown"
            staged = f"{STAGED}{at.epoch:012d}/{run}/{at.attempt}-{number:05d}"
            data = _ENCODERS[self.format](part)
            target.put(staged, data)
            tokens.append(
                {
                    "root": self.path,
                    "staged": staged,
                    "name": f"{folder}{name}",
                    "rows": part.num_rows,
                    "bytes": len(data),
                    "checksum": checksum(data),
                }
            )
        return tokens


def _far_row(sink: str, far: FarValue, at: StagePoint) -> SinkError:
    return SinkError(
        sink,
        epoch=at.epoch,
        what=f"column {far.column!r} of a row is {far.value}, outside the years 1 to"
        " 9999 of a Python datetime; nothing of this epoch was committed; keep such"
        " rows out of the stream with where(...), or cast the column to a string",
    )


def _csv(table: pa.Table) -> bytes:
    import pyarrow.csv as csv

    for place, name in enumerate(table.column_names):
        if first_far(table, [name]) is not None:
            table = table.set_column(place, name, text_column(table[name]))
    sink = io.BytesIO()
    csv.write_csv(table, sink)
    return sink.getvalue()


def _json(table: pa.Table) -> bytes:
    return b"\n".join(json_rows(table)) + b"\n"


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "json": _json,
    "csv": _csv,
    "parquet": encode_table,
}
