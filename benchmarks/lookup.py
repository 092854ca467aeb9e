"""How much of a cold snapshot the look-up of one key reads.

    python -m benchmarks.lookup [--keys 10000000] [--files 2]

Makes a store with so many keys (ten million) in so many files (two), and three epochs
of changes on top, looks up some keys, and prints the share of the bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import harness
from benchmarks.common import save
from riverlock.core.types import schema_of
from riverlock.query.opened_store import Store
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import (
    FORMAT,
    Manifest,
    OperatorState,
    StateFile,
    Variable,
)
from riverlock.snapshot.format.state_files import write_state_file
from riverlock.state.columns.key_columns import id_column
from riverlock.state.keys import group_range, key_group
from riverlock.state.layout import arrow_schema
from riverlock.storage import LocalStorage

KEYS = "k bigint"
VARIABLES = {
    "count": Variable(kind="value", type="bigint"),
    "spent": Variable(kind="value", type="double"),
}
NOTED = VARIABLES | {"note": Variable(kind="value", type="string")}
GROUPS, LOOKUPS = 128, 50
# On a slow machine; what bounds the time of a run.
MADE_PER_SECOND = 50_000


@dataclass(frozen=True)
class Counting(LocalStorage):
    """Counts what is read of state files."""

    read: list[int] = field(default_factory=list)

    def get(self, path: str) -> bytes:
        data = super().get(path)
        if path.endswith(".parquet"):
            self.read.append(len(data))
        return data

    def get_range(self, path: str, start: int, size: int) -> bytes:
        data = super().get_range(path, start, size)
        self.read.append(len(data))
        return data


def groups_of(keys: np.ndarray) -> np.ndarray:
    """The key groups of whole numbers: xxhash64 of one lane, for a column."""
    p1, p2, p3, p4, p5 = (
        np.uint64(p)
        for p in (
            0x9E3779B185EBCA87,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0x85EBCA77C2B2AE63,
            0x27D4EB2F165667C5,
        )
    )

    def rotated(x: np.ndarray, by: int) -> np.ndarray:
        return (x << np.uint64(by)) | (x >> np.uint64(64 - by))

    with np.errstate(over="ignore"):
        lane = rotated(keys.astype(np.uint64) * p2, 31) * p1
        mixed = rotated((np.uint64(42) + p5 + np.uint64(8)) ^ lane, 27) * p1 + p4
        mixed = (mixed ^ (mixed >> np.uint64(33))) * p2
        mixed = (mixed ^ (mixed >> np.uint64(29))) * p3
        mixed = mixed ^ (mixed >> np.uint64(32))
    return (mixed.view(np.int64) % GROUPS).astype(np.int32)


def variables_of(note: int) -> dict[str, Variable]:
    return NOTED if note else VARIABLES


def texts(count: int, length: int, values: np.random.Generator) -> pa.Array:
    """Strings that hardly compress: 64 letters at random."""
    letters = values.integers(48, 112, count * length, dtype=np.uint8)
    places = np.arange(count + 1, dtype=np.int32) * length
    buffers = [None, pa.py_buffer(places), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def table(keys: np.ndarray, values: np.random.Generator, note: int) -> pa.Table:
    groups = pa.array(groups_of(keys))
    column, count = pa.array(keys), len(keys)
    state = {
        "count": pa.array(values.integers(0, 1_000, count)),
        "spent": pa.array(values.random(count).round(2)),
    }
    if note:
        state["note"] = texts(count, note, values)
    data = pa.StructArray.from_arrays(list(state.values()), list(state))
    schema = arrow_schema(schema_of(KEYS), variables_of(note))
    whole = pa.table(
        {
            "id": id_column(groups, [column], lambda: [keys.tolist()]),
            "entry": pa.repeat(pa.scalar("values"), count),
            "key_group": groups,
            "key": pa.StructArray.from_arrays([column], ["k"]),
            "variable": pa.nulls(count, pa.string()),
            "deleted": pa.repeat(pa.scalar(value=False), count),
            "expires_at": pa.nulls(count, schema.field("expires_at").type),
            "timer": pa.nulls(count, schema.field("timer").type),
            "data": data,
        },
        schema=schema,
    )
    return whole.sort_by("id")


def write(catalog: Catalog, whole: pa.Table, epoch: int, files: int) -> list[StateFile]:
    made = []
    of_rows = whole["key_group"].to_numpy()
    for number in range(files):
        first, end = group_range(number, files, GROUPS)
        low, high = np.searchsorted(of_rows, [first, end])
        path = catalog.paths.state_file("op", epoch, f"a-{number}")
        made.append(
            write_state_file(
                catalog.storage,
                path,
                whole.slice(low, high - low),
                epochs=(epoch, epoch),
                groups=(first, end),
            )
        )
    return made


def make(root: Path, keys: int, files: int, *, note: int = 0) -> Catalog:
    """Make a store; with ``note``, each key also has a text of so many letters."""
    catalog = Catalog(Counting(root))
    flow = catalog.open_flow("lookup", key_groups=GROUPS, now_us=0)
    values = np.random.default_rng(7)
    made: list[StateFile] = []
    for epoch in range(4):
        chosen = np.arange(keys) * 7919
        if epoch:
            chosen = np.sort(values.choice(chosen, keys // 200, replace=False))
        made += write(catalog, table(chosen, values, note), epoch, files)
    state = OperatorState(keys=KEYS, variables=variables_of(note), files=tuple(made))
    catalog.decide(
        Manifest(
            format=FORMAT,
            flow=flow.id,
            region="main",
            epoch=3,
            parent=2,
            run=1,
            started_us=0,
            decided_us=0,
            now_us=0,
            seed=0,
            parallelism=files,
            key_groups=GROUPS,
            code="",
            operators={"op": state},
        )
    )
    return catalog


def look_up(keys: int, files: int) -> dict[str, float]:
    """Return the bytes of a store, the most that a look-up reads, and its seconds."""
    chosen = [random.Random(3).randrange(keys) * 7919 for _ in range(LOOKUPS)]
    expected = [key_group((k,), schema_of(KEYS), GROUPS) for k in chosen]
    assert groups_of(np.array(chosen)).tolist() == expected
    with tempfile.TemporaryDirectory() as root:
        catalog = make(Path(root), keys, files)
        storage = catalog.storage
        assert isinstance(storage, Counting)
        relation = Store(catalog).state("op")
        whole = sum(f.bytes for f in relation.view.state.files)
        begun, worst = time.process_time(), 0
        for key in chosen:
            storage.read.clear()
            assert len(relation.get(key)) == 1
            worst = max(worst, sum(storage.read))
        spent = (time.process_time() - begun) / LOOKUPS
    return {"bytes": whole, "read": worst, "seconds": spent}


def _line(result: dict[str, float]) -> str:
    whole, worst = result["bytes"], result["read"]
    return (
        f"a look-up reads at most {worst:,} of {whole:,} bytes, {worst / whole:.2%},"
        f" and takes {result['seconds'] * 1e3:.1f} ms of processor time"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    harness.add_options(parser)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(look_up(chosen.keys, chosen.files)))
        return
    seconds = 60 + chosen.keys / MADE_PER_SECOND
    name, arguments = f"{chosen.keys:,} keys", [*sys.argv[1:], "--only"]
    contender = harness.Contender(name, arguments, seconds)
    found = harness.measure("benchmarks.lookup", [contender], _line, chosen)
    save("lookup", found)


if __name__ == "__main__":
    main()
