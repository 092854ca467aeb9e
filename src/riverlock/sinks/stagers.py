"""Stagers of the built-in sinks: PyArrow only, no Spark."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import SinkError
from riverlock.snapshot.files import encode_table
from riverlock.snapshot.sealed import checksum
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from riverlock.sinks.stager import StagePoint

__all__ = ["FileStager", "TableStager", "json_values"]

_MAX_NAME = 255
STAGED = "_riverlock/staged/"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark call a null


@dataclass(frozen=True, kw_only=True)
class TableStager:
    """Stages rows as Parquet in the store, for sinks that the driver feeds."""

    sink: str

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Write one file."""
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
        for number, (folder, part) in enumerate(self._parts(table)):
            name = f"part-{at.attempt}-{number:05d}.{self.format}"
            staged = f"{STAGED}{at.epoch:012d}/{at.attempt}-{number:05d}"
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

    def _parts(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Split rows by the folder they belong to, in a fixed order.

        Not by their values: null and the empty string share a folder, and no NaN
        equals another.
        """
        if not self.partition_by:
            yield "", table
            return
        import numpy as np
        import pyarrow as pa

        columns = [
            [
                f"{_escaped(name)}={_partition_value(v)}/"
                for v in table[name].to_pylist()
            ]
            for name in self.partition_by
        ]
        places: dict[str, list[int]] = {}
        for place, parts in enumerate(zip(*columns, strict=True)):
            places.setdefault("".join(parts), []).append(place)
        rest = table.drop_columns(list(self.partition_by))
        for folder in sorted(places):
            self._check_names(folder)
            yield folder, rest.take(pa.array(np.array(places[folder])))

    def _check_names(self, folder: str) -> None:
        """Refuse now what no file system could take once the epoch is decided."""
        for name in folder.split("/"):
            if len(name.encode()) > _MAX_NAME:
                raise SinkError(
                    self.path,
                    epoch=None,
                    what=f"a folder name may have {_MAX_NAME} bytes, {name[:60]}... has"
                    f" {len(name.encode())}; partition by something shorter",
                )


def _partition_value(value: Any) -> str:
    return _NULL_PARTITION if value is None or value == "" else _escaped(str(value))


def _escaped(text: str) -> str:
    """Escape as Hive and Spark do: a few ASCII characters, nothing beyond."""
    return "".join(
        f"%{ord(c):02X}" if c in _ESCAPED or ord(c) < 32 or ord(c) == 127 else c
        for c in text
    )


def _csv(table: pa.Table) -> bytes:
    import pyarrow.csv as csv

    sink = io.BytesIO()
    csv.write_csv(table, sink)
    return sink.getvalue()


def _json(table: pa.Table) -> bytes:
    """Return one JSON object per line, with numbers and times as Spark writes them."""
    encoder = msgspec.json.Encoder(decimal_format="number")
    names = table.column_names
    columns = [json_values(table[n]) for n in names]
    lines = [
        encoder.encode(dict(zip(names, row, strict=True)))
        for row in zip(*columns, strict=True)
    ]
    return b"\n".join(lines) + b"\n"


def json_values(column: pa.ChunkedArray) -> list[Any]:
    """Return values as plain data that JSON can hold."""
    values: list[Any] = column.to_pylist()
    fix = _fixer(column.type)
    return values if fix is None else [None if v is None else fix(v) for v in values]


def _fixer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return how values of a type become JSON; Arrow gives maps as lists of pairs."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        item = _fixer(kind.item_type) or (lambda v: v)
        return lambda pairs: {str(k): None if v is None else item(v) for k, v in pairs}
    if pa.types.is_list(kind):
        inner = _fixer(kind.value_type)
        if inner is None:
            return None
        return lambda values: [None if v is None else inner(v) for v in values]
    if pa.types.is_struct(kind):
        fixes = {f.name: fix for f in kind if (fix := _fixer(f.type)) is not None}
        if not fixes:
            return None
        return lambda value: {
            n: fixes[n](v) if v is not None and n in fixes else v
            for n, v in value.items()
        }
    return None


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "json": _json,
    "csv": _csv,
    "parquet": encode_table,
}
