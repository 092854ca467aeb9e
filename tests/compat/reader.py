"""Prints the state of an operator at a retained epoch: docs/format.md in sixty lines.

    python reader.py STORE OPERATOR [EPOCH or NAME]

Needs PyArrow and the standard library, nothing of Riverlock.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def checked(data: bytes, checksum: str) -> bytes:
    if blake2b(data, digest_size=16).hexdigest() != checksum:
        raise SystemExit("a file differs from its checksum")
    return data


def unsealed(path: Path) -> Any:
    body, _, trailer = path.read_bytes().partition(b"\n")
    return json.loads(checked(body, json.loads(trailer)["blake2b"]))


def read(store: Path, operator: str, at: str | None = None) -> dict[str, Any]:
    if unsealed(store / "flow.json")["format"] != 1:
        raise SystemExit("another format")
    region = store / "regions" / "main"
    if at is not None and not at.isdecimal():
        at = str(unsealed(store / "snapshots" / f"{at}.json")["regions"]["main"])
    number = f"{int(at):012d}" if at else "*"
    manifest, entries = unsealed(max(region.glob(f"epochs/{number}.json"))), {}
    state = manifest["operators"][operator]
    lists = [unsealed(store / each["path"]) for each in state.get("lists", [])]
    files = [f for each in [state, *lists] for f in each.get("files", [])]
    for file in sorted(files, key=lambda f: f["first_epoch"]):
        data = checked((store / file["path"]).read_bytes(), file["checksum"])
        # Without threads: Arrow 26 may abort a program that ends soon after they start.
        whole = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        entries.update({r["id"]: r for r in whole.read(use_threads=False).to_pylist()})
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=manifest["now_us"])
    found: dict[str, Any] = {name: [] for name in [*state["variables"], "timers"]}
    for _, row in sorted(entries.items()):
        if row["deleted"] or (row["expires_at"] and row["expires_at"] <= now):
            continue
        parts = {row["variable"]: row["timer"]} if row["timer"] else row.get("data")
        for name, value in (parts or {}).items():
            if value is not None and (name is None or name in state["variables"]):
                of = {"key": row["key"], "key_group": row["key_group"]}
                found[name or "timers"].append({**of, "value": value})
    return found


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), *sys.argv[2:4]), indent=1, default=str))
