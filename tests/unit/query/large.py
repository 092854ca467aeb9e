"""A store with many keys in few files, made without an engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from riverlock.core.types import schema_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import (
    FORMAT,
    Manifest,
    OperatorState,
    StateFile,
    Variable,
)
from riverlock.snapshot.format.state_files import write_state_file
from riverlock.state.keys import group_range, key_group, key_ids
from riverlock.state.layout import arrow_schema
from riverlock.storage import LocalStorage

KEYS = "k bigint"
VARIABLES = {"n": Variable(kind="value", type="bigint")}
SCHEMA = arrow_schema(schema_of(KEYS), VARIABLES)
GROUPS = 128


@dataclass(frozen=True)
class Counting(LocalStorage):
    """Counts what is read of state files."""

    read: list[tuple[str, int]] = field(default_factory=list)

    def get(self, path: str) -> bytes:
        return self._counted(path, super().get(path))

    def get_range(self, path: str, start: int, size: int) -> bytes:
        return self._counted(path, super().get_range(path, start, size))

    def _counted(self, path: str, data: bytes) -> bytes:
        if path.endswith(".parquet"):
            self.read.append((path, len(data)))
        return data


def table(
    pairs: Iterable[tuple[int, int | None]], expires_us: int | None = None
) -> pa.Table:
    """Values by key; None is a tombstone."""
    keys, values = zip(*pairs, strict=True)
    schema = schema_of(KEYS)
    groups = [key_group((k,), schema, GROUPS) for k in keys]
    count = len(keys)
    deleted = pa.array([v is None for v in values])
    data = pa.StructArray.from_arrays(
        [pa.array(values, pa.int64())], ["n"], mask=deleted
    )
    columns = {
        "id": pa.array(key_ids(groups, [keys]), pa.binary()),
        "entry": pa.array(["values"] * count),
        "key_group": pa.array(groups, pa.int32()),
        "key": pa.StructArray.from_arrays([pa.array(keys, pa.int64())], ["k"]),
        "variable": pa.nulls(count, pa.string()),
        "deleted": deleted,
        "expires_at": pa.array([expires_us] * count, SCHEMA.field("expires_at").type),
        "timer": pa.nulls(count, SCHEMA.field("timer").type),
        "data": data,
    }
    return pa.table(columns, schema=SCHEMA).sort_by("id")


def make_large(
    root: Path,
    epochs: list[dict[int, int | None]],
    pieces: int,
    *,
    first_expires_us: int | None = None,
) -> Catalog:
    """Make a store whose epochs have these changes, each in so many files.

    What the first epoch has may expire; each epoch takes a microsecond.
    """
    catalog = Catalog(Counting(root))
    flow = catalog.open_flow("large", key_groups=GROUPS, now_us=0)
    files: list[StateFile] = []
    for epoch, changes in enumerate(epochs):
        whole = table(changes.items(), None if epoch else first_expires_us)
        files += [_piece(catalog, whole, epoch, n, pieces) for n in range(pieces)]
        state = OperatorState(keys=KEYS, variables=VARIABLES, files=tuple(files))
        assert catalog.decide(_manifest(flow.id, epoch, state))
    return catalog


def _piece(
    catalog: Catalog, whole: pa.Table, epoch: int, number: int, pieces: int
) -> StateFile:
    first, end = group_range(number, pieces, GROUPS)
    groups = whole["key_group"].to_numpy()
    rows = whole.filter(pa.array((groups >= first) & (groups < end)))
    path = catalog.paths.state_file("op", epoch, f"a-{number}")
    return write_state_file(
        catalog.storage, path, rows, epochs=(epoch, epoch), groups=(first, end)
    )


def _manifest(flow: str, epoch: int, state: OperatorState) -> Manifest:
    return Manifest(
        format=FORMAT,
        flow=flow,
        region="main",
        epoch=epoch,
        parent=epoch - 1 if epoch else None,
        run=1,
        started_us=epoch,
        decided_us=epoch,
        now_us=epoch,
        seed=0,
        parallelism=1,
        key_groups=GROUPS,
        code="",
        operators={"op": state},
    )
