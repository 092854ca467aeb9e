"""The test vectors of docs/format.md hold for the code."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from riverlock.core.errors import InvalidConfigError
from riverlock.core.types import schema_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format import records
from riverlock.snapshot.format.channels import Segment
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.joint import joint_records
from riverlock.state import keys
from riverlock.state.layout import StateLayout
from riverlock.storage import LocalStorage

TEXT = Path(__file__).parents[2].joinpath("docs", "format.md").read_text()
SPECIAL: dict[str, Any] = {
    "null": None,
    "true": True,
    "300 times `'x'`": "x" * 300,
    "`00ff`": b"\x00\xff",
    "2026-01-01": date(2026, 1, 1),
    "2026-01-01T00:00:00Z": datetime(2026, 1, 1, tzinfo=UTC),
    "2026-01-01T00:00:00": datetime(2026, 1, 1),  # noqa: DTZ001 - has no zone
    "12.50": Decimal("12.50"),
}


def _value(text: str) -> Any:
    if text in SPECIAL:
        return SPECIAL[text]
    if text.startswith("`'"):
        return text[2:-2]
    return float(text) if "." in text else int(text)


_VECTOR = re.compile(r"\| `(k|a) ([^|]*)` \| ([^|]+) \| (-?\d+) \| (\d+) \| `(\w+)` \|")
VECTORS = [m.groups() for m in _VECTOR.finditer(TEXT)]


def test_vectors_are_found() -> None:
    assert len(VECTORS) >= 19


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v[1]} {v[2]}"[:40])
def test_key_group_and_id_are_as_documented(vector: tuple[str, ...]) -> None:
    name, rest, key, hashed, group, entry_id = vector
    schema = schema_of(f"{name} {rest}")
    values = StateLayout(schema, {}).key_of([_value(v) for v in key.split(", ")])

    assert keys.xxhash64(values, schema) == int(hashed)
    assert keys.key_group(values, schema, 128) == int(group)
    found = keys.with_group(int(group), keys.key_bytes(values))
    assert found.hex() == entry_id


ANN = keys.with_group(1, keys.key_bytes(("ann",)))


@pytest.mark.parametrize(
    ("entry", "made"),
    [
        ("`value` spent", ANN + keys.value_slot("spent")),
        (
            "`list` recent, index 3",
            ANN + keys.list_slot("recent") + keys.index_bytes(3),
        ),
        (
            "`map` seen, key `'a'`",
            ANN + keys.map_slot("seen") + keys.map_key_bytes("a"),
        ),
        (
            "event timer at 1970-01-01T00:00:01Z",
            ANN + keys.timer_slot(0, 1_000_000),
        ),
        ("processing timer at -1 µs", ANN + keys.timer_slot(1, -1)),
        ("`values` of group 5 (scope `group`)", keys.group_id(5)),
        ("`values` of scope `broadcast`", keys.BROADCAST),
    ],
)
def test_other_ids_are_as_documented(entry: str, made: bytes) -> None:
    assert f"| {entry} | `{made.hex()}` |" in TEXT


def test_sealed_file_is_as_documented() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)

    run = unseal(text.encode(), records.Run, path="runs/1.json")

    assert seal(run) == text.encode()
    body, trailer = text.splitlines()
    digest = blake2b(body.encode(), digest_size=16).hexdigest()
    assert json.loads(trailer) == {"blake2b": digest}


@pytest.mark.parametrize(
    "record",
    [
        records.Flow,
        records.Run,
        records.Manifest,
        records.OperatorState,
        records.StateFile,
        records.Variable,
        records.InputRange,
        records.Meaning,
        records.Watermark,
        records.SinkOutput,
        records.TimerHeads,
        records.Named,
        records.JointCut,
        joint_records.CutBegun,
        joint_records.CutDecided,
        joint_records.CutPart,
        joint_records.ReaderRecord,
        Segment,
    ],
)
def test_every_field_is_documented(record: type[records.Record]) -> None:
    fields = record.__struct_fields__

    assert [n for n in fields if not re.search(rf"[`{{ ]{n}[`,}}:]", TEXT)] == []


def test_name_of_a_snapshot_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError):
        Catalog(LocalStorage(tmp_path)).pin("42", epoch=42, now_us=0)
