"""State files and manifests without an engine."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from riverlock.core.types import schema_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import (
    FORMAT,
    Flow,
    Manifest,
    OperatorState,
    StateFile,
    Variable,
)
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.format.state_files import write_state_file
from riverlock.snapshot.format.store_layout import FLOW, RegionPaths
from riverlock.state.layout import arrow_schema
from riverlock.storage import LocalStorage

KEYS = "k string"
VARIABLES = {"n": Variable(kind="value", type="bigint")}
SCHEMA = arrow_schema(schema_of(KEYS), VARIABLES)
PATHS = RegionPaths("main")
GROUPS = 8


def group_of(key: str) -> int:
    return sum(key.encode()) % GROUPS


def table(entries: dict[str, int | None], *, expires_us: int | None = None) -> pa.Table:
    """Values by key; None is a tombstone, a key ``*`` a broadcast entry."""
    rows: list[dict[str, Any]] = []
    for key, value in sorted(entries.items()):
        is_shared = key.startswith("*")
        rows.append(
            {
                "id": (b"\xff\xff" if is_shared else b"") + key.encode(),
                "entry": "values",
                "key_group": None if is_shared else group_of(key),
                "key": None if is_shared else {"k": key},
                "deleted": value is None,
                "expires_at": expires_us,
                "data": None if value is None else {"n": value},
            }
        )
    rows.sort(key=lambda r: r["id"])
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def write(
    storage: LocalStorage,
    epoch: int,
    entries: dict[str, int | None],
    groups: tuple[int, int] = (0, GROUPS),
    **options: Any,
) -> StateFile:
    path = PATHS.state_file("op", epoch, f"{groups[0]}-attempt")
    data = table(entries, **options)
    return write_state_file(storage, path, data, epochs=(epoch, epoch), groups=groups)


def as_dict(data: pa.Table) -> dict[str, int | None]:
    ids = [i.removeprefix(b"\xff\xff").decode() for i in data["id"].to_pylist()]
    values = [None if d is None else d["n"] for d in data["data"].to_pylist()]
    return dict(zip(ids, values, strict=True))


def manifest(epoch: int, files: tuple[StateFile, ...] = ()) -> Manifest:
    return Manifest(
        format=FORMAT,
        flow="shop",
        region="main",
        epoch=epoch,
        parent=epoch - 1 if epoch > 1 else None,
        run=1,
        started_us=epoch,
        decided_us=epoch,
        now_us=epoch,
        seed=0,
        parallelism=1,
        key_groups=GROUPS,
        code="",
        operators={"op": OperatorState(keys=KEYS, variables=VARIABLES, files=files)},
    )


def catalog(storage: LocalStorage) -> Catalog:
    flow = Flow(format=FORMAT, name="shop", id="shop", key_groups=GROUPS, created_us=0)
    storage.put_if_absent(FLOW, seal(flow))
    return Catalog(storage)
