"""Rows of files: each is in the stream or in ``.bad``, whichever columns are used."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import riverlock as rl
from riverlock.connectors.files.reading.reader import FilesReader
from riverlock.core.errors import InvalidConfigError, SourceError
from riverlock.snapshot.format.store_layout import RegionPaths
from riverlock.storage.open import open_storage

pytestmark = pytest.mark.spark

SCHEMA = "k string, n bigint, x int"
# What a line gives: its row, or None if it is bad. A line that is no row is left out.
JSON_LINES: dict[bytes, tuple[Any, ...] | None] = {
    b'{"k": "a", "n": 1, "x": 2}': ("a", 1, 2),
    b'  {"k": "b"}\t': ("b", None, None),
    b'{"k": {"z": "}"}, "n": 3, "other": [{}, {}]}': ('{"z":"}"}', 3, None),
    b'{"k": "c", "n": "oops"}': None,
    b'{"k": "c", "x": "oops"}': None,
    b'{"k": "c", "x": 99999999999}': None,
    b'{"k": "c", "n": 1.5}': None,
    b'{"k": "c", "n": ""}': None,
    b"not json": None,
    b'{"k": "c", "n": 1': None,
    b'{"k": "c"} and more': None,
    b'{"k": "c"}{"k": "d"}': None,
    b'{"k": "c"},{"k": "d"}': None,
    b'{"k": "c"}]{"k": "d"}': None,
    b'{"k": "c"}, "n": {"a": 1}': None,
    b'{"k": [1, [2]], "n": 5, "other": [NaN], "x": 6}': ("[1,[2]]", 5, 6),
    b'{"k": "c"}], "n": [{"k": "d"}': None,
    b'{"k": "c"}], "__rl_values": [{"k": "d"}': None,
    b'[{"k": "c"}, {"k": "d"}]': None,
    b"null": None,
    b"5": None,
    b'"c"': None,
    b'{"k": "\xff"}': None,
    b"\x00\x00": None,
    # Of a name that occurs twice, the last counts.
    b'{"k": "e", "k": "f"}': ("f", None, None),
    b'{"k": "e", "n": "x", "n": 1}': None,
    b'{"k": "g", "other": [NaN, -Infinity], "x": 1}': ("g", None, 1),
    b'{"k": "g", "other": {}}}': None,
    b'{"k": "g"}],[{"k": "h"}': None,
    b'{"k": "g"}\x00': None,
    b"\x0b": None,
    # Half a character, a whole one, and a backslash.
    rb'{"k": "g", "other": "\ude00"}': None,
    rb'{"k": "g\ud83d"}': None,
    rb'{"k": "\\\uDE00"}': None,
    rb'{"k": "\ud83d\uDe00"}': ("\N{GRINNING FACE}", None, None),
    rb'{"k": "\\ude00"}': (r"\ude00", None, None),
    b'{"k": "g", "x": ' + b"[" * 2_000 + b"]" * 2_000 + b"}": None,
    b'{"k": "g", "other": ' + b"1" * 2_000 + b"}": None,
}
CSV_LINES: dict[bytes, tuple[Any, ...] | None] = {
    b"a,1,2": ("a", 1, 2),
    b'"b,c",,': ("b,c", None, None),
    b"c,oops,1": None,
    b"c,1,oops": None,
    b"c,1,99999999999": None,
    b"c": None,
    b"c,1": None,
    b"c,1,2,3": None,
    b'"c': None,
    b'c,1,"x': None,
    b"\xff,1,2": None,
    b"c,\xff,2": None,
    b"\xef\xbf\xbd,1,2": ("\N{REPLACEMENT CHARACTER}", 1, 2),
    b",,": (None, None, None),
    b"\x00": None,
    b"\x01\x02": None,
    b"\x01,1,2": ("\x01", 1, 2),
    b"c,1,2,": None,
}
TEXT_LINES: dict[bytes, tuple[Any, ...] | None] = {
    b"a": ("a",),
    b"": ("",),
    b"\xc3\xa9": ("é",),
    b"\xff": None,
    b"a\xe9b": None,
}
BLANK = {"json": (b"", b"  \t"), "csv": (b"", b"   "), "text": ()}
LINES = {"json": JSON_LINES, "csv": CSV_LINES, "text": TEXT_LINES}


def reader_of(spark: SparkSession, tmp: Path, source: Any) -> FilesReader:
    return FilesReader(
        spark, source, "in", (open_storage(str(tmp / "store")), RegionPaths("main"))
    )


def whole(reader: FilesReader) -> tuple[DataFrame, DataFrame]:
    """Return the rows of all files, and the bad ones."""
    start = reader.initial()
    end = reader.advance(start, reader.latest(start), 1_000_000)
    return reader.read(start, end), reader.read_bad(start, end)


def good_and_bad(
    spark: SparkSession, tmp: Path, kind: str, lines: list[bytes], **options: Any
) -> None:
    """Check that rows and bad rows are the lines, by all columns and by each."""
    folder = tmp / "in"
    folder.mkdir(parents=True)
    middle = len(lines) // 2
    (folder / f"a.{kind}").write_bytes(b"".join(b"%b\n" % n for n in lines[:middle]))
    (folder / f"b.{kind}").write_bytes(b"\r\n".join(lines[middle:]))
    schema = None if kind == "text" else SCHEMA
    source = rl.sources.files(str(folder), format=kind, schema=schema, **options)
    known = LINES[kind]
    # A last line that is empty has no end either: it is not there.
    read = lines[:-1] if lines[middle:] and not lines[-1] else lines
    read = [line for line in read if line not in BLANK[kind]]
    expected = Counter(known[line] for line in read)
    unread = expected.pop(None, 0)

    stream, bad = whole(reader_of(spark, tmp, source))
    names = [c for c in stream.columns if not c.startswith("__rl_")]
    assert Counter(tuple(r) for r in stream.select(*names).collect()) == expected
    only = Counter(r[0] for r in stream.select(names[0]).collect())
    assert only == Counter(row[0] for row in expected.elements() if row is not None)
    assert stream.count() == expected.total()
    records = [r.record for r in bad.collect()]
    assert len(records) == bad.count() == unread
    texts = [n.decode("utf-8", "replace") for n in read if known[n] is None]
    assert Counter(n.strip() for n in records) == Counter(n.strip() for n in texts)


@pytest.mark.parametrize("kind", ["json", "csv", "text"])
def test_every_known_kind_of_line_is_in_the_stream_or_bad(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    good_and_bad(spark, tmp_path, kind, [*LINES[kind], *BLANK[kind], *LINES[kind]])


@settings(max_examples=3)
@given(data=st.data())
def test_rows_and_bad_rows_are_the_lines_of_the_files(
    spark: SparkSession, tmp_path_factory: Any, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(["json", "csv", "text"]))
    choice = st.sampled_from([*LINES[kind], *BLANK[kind]])
    lines = data.draw(st.lists(choice, max_size=12))
    good_and_bad(spark, tmp_path_factory.mktemp("rows"), kind, lines)


@settings(max_examples=2)
@given(st.lists(st.integers(-40_000, 40_000), min_size=1, max_size=8))
@example([1, 200, -129, 70_000, 0])
def test_parquet_numbers_that_do_not_fit_their_column_are_bad(
    spark: SparkSession, tmp_path_factory: Any, numbers: list[int]
) -> None:
    tmp = tmp_path_factory.mktemp("rows")
    folder = tmp / "in"
    folder.mkdir()
    table = pa.table({"k": [str(n) for n in numbers], "n": pa.array(numbers, "int32")})
    pq.write_table(table, folder / "a.parquet")
    source = rl.sources.files(str(folder), format="parquet", schema="k string, n byte")

    stream, bad = whole(reader_of(spark, tmp, source))

    fit = sorted(n for n in numbers if -128 <= n < 128)
    assert sorted(r.n for r in stream.collect()) == fit
    assert sorted(int(r.k) for r in stream.select("k").collect()) == fit
    others = sorted(json.loads(r.record)["n"] for r in bad.collect())
    assert others == sorted(n for n in numbers if not -128 <= n < 128)


def test_csv_headers_and_comments_are_no_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.csv").write_text("k,n,x\n# nothing\na,1,2\nb\n")
    source = rl.sources.files(
        str(folder), format="csv", schema=SCHEMA, header=True, comment="#"
    )

    stream, bad = whole(reader_of(spark, tmp_path, source))

    assert [r.k for r in stream.select("k").collect()] == ["a", "a"]
    assert [r.record for r in bad.collect()] == ["b", "b"]


@pytest.mark.parametrize("header", [False, True])
def test_an_open_quote_at_the_end_of_a_line_is_bad(
    spark: SparkSession, tmp_path: Path, header: bool
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = ['a;1;"closed; \N{REPLACEMENT CHARACTER}"', 'b;2;"open', "c;3;é", "d;4;\\"]
    first = ["k;n;v"] if header else []
    body = "\n".join([*first, *lines]).encode() + b"\ne;5;\xff\n"
    (folder / "a.csv").write_bytes(body)
    source = rl.sources.files(
        str(folder),
        format="csv",
        schema="k string, n int, v string",
        header=header,
        sep=";",
        nullValue="é",
    )

    stream, bad = whole(reader_of(spark, tmp_path, source))

    assert sorted((r.k, r.n, r.v) for r in stream.collect()) == [
        ("a", 1, "closed; \N{REPLACEMENT CHARACTER}"),
        ("c", 3, None),
        ("d", 4, "\\"),
    ]
    found = sorted(r.record for r in bad.collect())
    assert found == ['b;2;"open', "e;5;\N{REPLACEMENT CHARACTER}"]


def test_fields_between_tabs_may_all_be_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(b"a\t1\n\t\n\n \n" + b"\t" * 30_000)
    source = rl.sources.files(
        str(folder), format="csv", schema="k string, n int", sep="\t"
    )

    stream, bad = whole(reader_of(spark, tmp_path, source))

    assert [(r.k, r.n) for r in stream.collect()] == [("a", 1), (None, None)]
    assert [len(r.record) for r in bad.collect()] == [30_000]


def test_a_line_of_more_fields_than_spark_reads_is_bad(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    many = b"," * 30_000
    lines = [b'a,"%b"' % many, many, b"b,\\", b"," * (1 << 20), b"c,0123456"]
    (folder / "a.csv").write_bytes(b"\n".join(lines))
    source = rl.sources.files(
        str(folder), format="csv", schema="k string, v string", maxColumns=100
    )

    stream, bad = whole(reader_of(spark, tmp_path, source))

    assert [r.v for r in stream.collect()] == [many.decode(), "\\", "0123456"]
    assert [len(r.record) for r in bad.collect()] == [30_000, 1 << 20]


def test_fields_longer_than_was_said_are_bad(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("a_1\nb_123\n12345_2\n1234_3\n")
    source = rl.sources.files(
        str(folder),
        format="csv",
        schema="k string, n int",
        sep="_",
        maxCharsPerColumn=4,
    )

    stream, bad = whole(reader_of(spark, tmp_path, source))

    assert [r.k for r in stream.collect()] == ["a", "b", "1234"]
    assert [r.record for r in bad.collect()] == ["12345_2"]


WIDE = (
    "b byte, s smallint, i int, d decimal(5, 2), t timestamp, day date, f boolean,"
    " inner struct<b: byte, at: timestamp>, many array<int>, times array<timestamp>,"
    " named map<string, struct<at: timestamp>>, bytes array<byte>, x double"
)
# More seconds than a timestamp holds; Spark lets them wrap around.
FAR = 2**63 // 1_000_000 + 1


# Values of columns, and whether they fit.
VALUES: tuple[tuple[str, Any, bool], ...] = (
    ("b", 127, True),
    ("b", 200, False),
    ("s", 40_000, False),
    ("i", 2**31, False),
    ("d", 999.99, True),
    ("d", 123456.7, False),
    ("t", "2026-01-01T00:00:00Z", True),
    ("t", 1767225600, True),
    ("t", "2026-13-01T00:00:00Z", False),
    ("t", 1767225600000000, False),
    ("day", "2026-02-28", True),
    ("day", "2026-02-30", False),
    ("f", "true", False),
    ("inner", {"b": 1}, True),
    ("inner", {"b": 200}, False),
    ("inner", {"b": "x"}, False),
    ("many", [1, 2], True),
    ("many", [1, "x"], False),
    ("day", "20260228", False),
    ("inner", {"at": FAR - 2}, True),
    ("inner", {"at": FAR}, False),
    ("inner", {"at": -FAR}, False),
    ("times", ["2026-01-01T00:00:00Z", FAR], False),
    ("times", ["2026-01-01T00:00:00Z", None, 5], True),
    ("named", {"a": {"at": 1}, "b": {"at": FAR}}, False),
    ("named", {"a": {"at": 1}, "b": None, "12345678901234": {}}, True),
    ("bytes", [1, 127, None], True),
    ("bytes", [1, 128], False),
    ("x", float("nan"), True),
    ("x", float("-inf"), True),
)


@pytest.mark.parametrize("is_document", [False, True])
def test_json_values_that_do_not_fit_their_type_are_bad_and_not_null(
    spark: SparkSession, tmp_path: Path, is_document: bool
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [
        # Braces of a further value must not change what is bad.
        json.dumps({"id": n, c: v, "other": [{}]})
        for n, (c, v, _) in enumerate(VALUES)
    ]
    if is_document:
        for number, line in enumerate(lines):
            (folder / f"{number}.json").write_text(f"[\n{line}\n]\n")
    else:
        (folder / "a.json").write_text("\n".join(lines))
    source = rl.sources.files(
        str(folder), format="json", schema=f"id int, {WIDE}", multiLine=is_document
    )

    stream, bad = whole(reader_of(spark, tmp_path, source))

    # As text: Python has no times as far as Spark's.
    found = [
        json.loads(r.row)
        for r in stream.selectExpr("to_json(struct(*)) AS row").collect()
    ]
    rows = {r["id"]: r for r in found}
    assert {n for n, (_, _, fits) in enumerate(VALUES) if fits} == rows.keys()
    assert all(row[VALUES[n][0]] is not None for n, row in rows.items())
    others = [n for n in range(len(VALUES)) if n not in rows]
    records = [json.loads(r.record.strip("[\n]")) for r in bad.collect()]
    assert sorted(r["id"] for r in records) == others


def test_a_json_document_is_read_whole_or_is_bad(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    texts = {
        "object": '{"k": "a",\n "n": 1}\n',
        "array": '[\n{"k": "b"},\n{"k": "c", "n": 2}\n]',
        "empty": "[]",
        "blank": " \n",
        "two": '{"k": "d"}\n{"k": "e"}\n',
        "cut": '[{"k": "d"},\n{"k"',
        "wrong": '[{"k": "d"}, {"k": "e", "n": "x"}]',
        "marked": '\N{BYTE ORDER MARK}{"k": "f"}',
        "none": '[{"k": "d"}, null]',
        "lists": '[{"k": "d"}],\n[{"k": "e"}]',
    }
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)
    source = rl.sources.files(
        str(folder), format="json", schema="k string, n bigint", multiLine=True
    )

    stream, bad = whole(reader_of(spark, tmp_path, source))

    rows = sorted((r.k, r.n) for r in stream.collect())
    assert rows == [("a", 1), ("b", None), ("c", 2), ("f", None)]
    found = sorted(r.record for r in bad.collect())
    bad_ones = ("two", "cut", "wrong", "none", "lists")
    assert found == sorted(texts[n] for n in bad_ones)


def test_two_views_of_a_source_agree_on_what_is_bad(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text(
        '{"k": "a", "n": 1}\n{"k": "b", "n": "oops"}\n{"k": "c", "n": 3}\n'
    )
    some, every, bad = rl.sinks.memory(), rl.sinks.memory(), rl.sinks.memory()
    flow = rl.Flow("views")
    source = rl.sources.files(str(folder), format="json", schema="k string, n bigint")
    stream = flow.read(source, uid="in")
    stream.select("k").write(some, uid="some")
    stream.key_by("k").agg(n="count(*)").select("k", "n").write(every, uid="every")
    stream.bad.write(bad, uid="bad")

    status = flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert sorted(some.rows()) == [("a",), ("c",)]
    assert sorted(every.rows()) == [("a", 1), ("c", 1)]
    assert [r[1] for r in bad.rows()] == ['{"k": "b", "n": "oops"}']
    assert status is not None
    assert status.bad_rows == 1


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_bad_row_that_stops_the_flow_is_named(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / f"a.{kind}").write_bytes(b"caf\xe9, and more\n")
    schema = None if kind == "text" else "n bigint"
    source = rl.sources.files(str(folder), format=kind, schema=schema, bad_rows="fail")
    flow = rl.Flow("strict")
    flow.read(source, uid="in").select("1 AS one").write(rl.sinks.memory(), uid="out")

    with pytest.raises(SourceError) as caught:
        flow.run(str(tmp_path / "store"), spark=spark, available_now=True)

    assert f"a.{kind}" in str(caught.value)
    assert "caf\ufffd, and more" in str(caught.value)
    assert "bad_rows" in caught.value.hint


@pytest.mark.parametrize("option", ["mode", "pathGlobFilter", "IgnoreCorruptFiles"])
def test_options_that_would_lose_rows_are_refused(option: str) -> None:
    given: dict[str, Any] = {option: "x"}

    with pytest.raises(InvalidConfigError, match=option):
        rl.sources.files("in", format="json", schema="n int", **given)
