"""JSON without Spark: the same texts are rows, and have the same values, as with it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_file_rows import (
    JSON_LINES,
    LINES,
    SCHEMA,
    VALUES,
    WIDE,
)
from tests.integration.test_kafka_json import MORE

from riverlock.connectors.files.reading.splits import FileSplit
from riverlock.connectors.parsing.json_decoding import JsonDecoder
from riverlock.core.types import schema_of

BAD = schema_of("file string, record string")


def test_values_have_the_rules_of_spark() -> None:
    pairs: list[tuple[bytes | None, tuple[Any, ...] | None]] = [*MORE.items()]
    known = dict([*pairs, *JSON_LINES.items()])
    decoder = pickle.loads(pickle.dumps(JsonDecoder(schema_of(SCHEMA))))

    found, wrong = decoder.decoded(list(known))

    rows = [
        tuple(row.values()) if why is None else None
        for row, why in zip(found.to_pylist(), wrong, strict=True)
    ]
    assert dict(zip(known, rows, strict=True)) == known


@pytest.mark.parametrize(("name", "value", "fits"), VALUES)
def test_a_value_that_does_not_fit_its_type_is_bad(
    name: str, value: Any, fits: bool
) -> None:
    text = json.dumps({name: value, "other": [{}]}).encode()

    found, (why,) = JsonDecoder(schema_of(WIDE)).decoded([text])

    assert (why is None) == fits
    if fits:
        assert found.field(name).null_count == 0


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("float", "0.1", 0.10000000149011612),
        # Between two numbers of 32 bits: rounded once, not by way of 64 bits.
        ("float", "1.00000017881393432617187499", 1.0000001192092896),
        ("float", '"-INF"', float("-inf")),
        ("double", "1e400", float("inf")),
        ("double", "3", 3.0),
        ("string", "1.50", "1.5"),
        ("string", "[1e3, true, null]", "[1000.0,true,null]"),
        ("string", r"{'a': 'b\"\n'}", '{"a":"b\\"\\n"}'),
        ("bigint", "-0", 0),
        ("timestamp_ntz", '"2024-03-01T12:00:00.5"', None),
    ],
)
def test_values_are_read_as_they_are_written(kind: str, text: str, value: Any) -> None:
    decoder = JsonDecoder(schema_of(f"v {kind}"))

    found, (why,) = decoder.decoded([f'{{"v": {text}}}'.encode()])

    assert why is None
    if value is not None:
        assert found.field("v")[0].as_py() == value


@pytest.mark.parametrize("kind", ["json", "text"])
def test_lines_of_a_file_are_in_the_stream_or_bad(kind: str, tmp_path: Path) -> None:
    known = LINES[kind]
    path = tmp_path / "a b.json"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(known) + b"\n")
    split = FileSplit(
        path=str(path),
        format=kind,
        columns=schema_of("value string" if kind == "text" else SCHEMA),
        bad_columns=BAD,
        fails=False,
        uid="in",
    )

    rows, bad = split.parted()

    good = [row for row in known.values() if row is not None]
    assert [tuple(row.values()) for row in rows.to_pylist()] == good
    wrong = [line.decode("utf-8", "replace") for line, row in known.items() if not row]
    assert bad["record"].to_pylist() == wrong
    assert set(bad["file"].to_pylist()) == {f"file://{tmp_path}/a%20b.json"}
