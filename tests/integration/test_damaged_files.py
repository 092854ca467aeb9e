"""Files with random damage: each line is in the stream or in ``.bad``, once."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.integration.test_file_rows import reader_of, whole

import riverlock as rl
from riverlock.core.errors import SourceError

pytestmark = pytest.mark.spark

SCHEMA = "k string, n bigint, x double"
HEADER = b"k,n,x"
FIELDS = ("k", "n", "x")
MARK = b"\xef\xbb\xbf"
# Put into a line, or in place of one.
PIECES = (
    b'"',
    b",",
    b"}",
    b"{",
    b"[",
    b"\\",
    b"\x00",
    b"\x01",
    b"\r",
    b"\xff",
    b"\xef\xbf\xbd",
    MARK,
    b"NaN",
    b"9" * 25,
    rb"\ud83d",
    rb"\ud83d\ude00",
    b"y" * 70_000,
)
JUNK = (
    b"",
    b" ",
    b"\x01\x02",
    b"\x00" * 9,
    b'"',
    b",,",
    b",",
    b"\t,",
    b"null",
    b"[]",
    b"{}",
)

words = st.sampled_from(["a", "", "é", "\N{REPLACEMENT CHARACTER}", "b c", "😀", "1"])
rows = st.tuples(words, st.integers(-9, 2**63 - 1), st.sampled_from([0.5, -1e9, 3.0]))
changes = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, 40), st.just(b"")),
    st.tuples(st.just("over"), st.integers(0, 40), st.binary(min_size=1, max_size=2)),
    st.tuples(st.just("into"), st.integers(0, 60), st.sampled_from(PIECES)),
    st.tuples(st.just("whole"), st.just(0), st.sampled_from(JUNK)),
    st.just(("none", 0, b"")),
    st.just(("none", 0, b"")),
)
ends = st.sampled_from([b"\n", b"\r\n"])
files = st.lists(
    st.tuples(
        st.lists(st.tuples(rows, changes, ends), min_size=1, max_size=25),
        st.booleans(),  # a byte order mark
        st.booleans(),  # an end of the last line
    ),
    min_size=3,
    max_size=4,
)


def written(kind: str, row: tuple[Any, ...]) -> bytes:
    if kind == "json":
        return json.dumps(dict(zip(FIELDS, row, strict=True))).encode()
    if kind == "csv":
        return f'"{row[0]}",{row[1]},{row[2]}'.encode()
    return str(row[0]).encode()


def damaged(line: bytes, how: str, at: int, piece: bytes) -> bytes:
    match how:
        case "cut":
            return line[:at]
        case "over":
            return line[:at] + piece + line[at + len(piece) :]
        case "into":
            return line[:at] + piece + line[at:]
        case "whole":
            return piece
        case _:
            return line


def lines_of(body: bytes) -> list[bytes]:
    """Cut a file into lines as Hadoop does."""
    lines = re.split(rb"\r\n|\n|\r", body.removeprefix(MARK))
    return lines if lines[-1] else lines[:-1]


def is_row(kind: str, line: bytes, *, header: bool) -> bool:
    if header:
        # Spark leaves out the header, and here takes control characters for blanks.
        return bool(line.strip(bytes(range(33))))
    blank = {"json": b" \t\r\n", "csv": b" \t\r", "text": b""}[kind]
    return kind == "text" or bool(line.strip(blank))


def check_json(rows: Counter[Any], lines: Counter[str]) -> None:
    """Check that what is in the stream is what Python reads in the same lines."""
    expected: Counter[Any] = Counter()
    for line, times in lines.items():
        value = json.loads(line)
        found = [value.get(name) for name in FIELDS]
        if found[0] is not None and not isinstance(found[0], str):
            return  # Spark takes any value for text
        expected[repr((*found[:2], None if found[2] is None else float(found[2])))] += (
            times
        )
    assert Counter(map(repr, rows.elements())) == expected


def check_splits(reader: Any, rows: Counter[Any], bad: Counter[Any]) -> None:
    """Check that Python reads the same rows, and the same bad ones, as Spark."""
    start = reader.initial()
    end = reader.advance(start, reader.latest(start), 1_000_000)
    both = [split.parted() for split in reader.splits(start, end, 1)]
    mine = [tuple(row.values()) for table, _ in both for row in table.to_pylist()]
    wrong = [tuple(row.values()) for _, table in both for row in table.to_pylist()]
    assert Counter(map(repr, mine)) == Counter(map(repr, rows.elements()))
    assert Counter(wrong) == bad


@pytest.mark.parametrize("kind", ["json", "csv", "csv with header", "text"])
# To shrink takes minutes of Spark; what failed is short enough to read.
@settings(
    max_examples=4,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(files=files)
def test_every_line_of_damaged_files_is_in_the_stream_or_bad(
    spark: SparkSession, tmp_path_factory: Any, kind: str, files: list[Any]
) -> None:
    kind, _, header = kind.partition(" with ")
    tmp = tmp_path_factory.mktemp("damaged")
    (tmp / "in").mkdir()
    lines: Counter[bytes] = Counter()
    healthy: dict[bytes, tuple[Any, ...]] = {}
    for number, (parts, has_mark, has_end) in enumerate(files):
        body = b"".join(damaged(written(kind, r), *how) + end for r, how, end in parts)
        body = body if has_end else body.removesuffix(b"\n").removesuffix(b"\r")
        lines.update(n for n in lines_of(body) if is_row(kind, n, header=bool(header)))
        healthy |= {written(kind, row): row for row, _, _ in parts}
        if header:
            body = HEADER + b"\n" + body
        (tmp / "in" / f"{number}.{kind}").write_bytes(
            (MARK if has_mark else b"") + body
        )
    options: dict[str, Any] = {"header": True} if header else {}
    schema = None if kind == "text" else SCHEMA
    source = rl.sources.files(str(tmp / "in"), format=kind, schema=schema, **options)

    reader = reader_of(spark, tmp, source)
    stream, bad = whole(reader)
    names = [c for c in stream.columns if not c.startswith("__rl_")]
    found = Counter(tuple(r) for r in stream.select(*names).collect())
    one = Counter(r[0] for r in stream.select(names[-1]).collect())
    records = Counter(r.record for r in bad.collect())

    assert one == Counter(row[-1] for row in found.elements())
    if kind != "csv":
        check_splits(reader, found, Counter((r.file, r.record) for r in bad.collect()))
    assert found.total() + records.total() == lines.total()
    texts = Counter(n.decode("utf-8", "replace") for n in lines.elements())
    assert records <= texts
    good = texts - records
    assert good.total() == found.total()
    for line, row in healthy.items():
        wanted = (row[0] or None, *row[1:]) if kind == "csv" else row[: len(names)]
        assert found[wanted] >= lines[line]
    if kind == "json":
        check_json(found, good)


@settings(max_examples=10)
@given(cut=st.integers(1, 10_000))
@example(cut=10_000)
def test_a_parquet_file_that_was_cut_is_an_error_that_names_it(
    spark: SparkSession, tmp_path_factory: Any, cut: int
) -> None:
    tmp = tmp_path_factory.mktemp("damaged")
    (tmp / "in").mkdir()
    file: Path = tmp / "in" / "a.parquet"
    table = pa.table({"k": ["a", "b"] * 500, "n": list(range(1_000))})
    pq.write_table(table, tmp / "in" / "b.parquet")
    whole_file = (tmp / "in" / "b.parquet").read_bytes()
    file.write_bytes(whole_file[: max(0, len(whole_file) - cut)])
    source = rl.sources.files(
        str(tmp / "in"), format="parquet", schema="k string, n bigint"
    )
    reader = reader_of(spark, tmp, source)

    with pytest.raises(SourceError, match=r"a\.parquet") as caught:
        whole(reader)

    assert "remove it" in caught.value.hint
    file.write_bytes(whole_file)
    stream, bad = whole(reader_of(spark, tmp, source))
    assert (stream.count(), bad.count()) == (2_000, 0)
