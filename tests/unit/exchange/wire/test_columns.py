from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

from riverlock.core.errors import InvalidConfigError
from riverlock.exchange.limits import Limits
from riverlock.exchange.protocol.frames import Rows
from riverlock.exchange.wire.codec import Decoder, Encoder
from riverlock.exchange.wire.columns import ColumnWriter, EncodedRows, ReceivedRows
from riverlock.exchange.wire.header import BadFrameError
from riverlock.exchange.wire.reading import FrameReader

TIME = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
COLUMNS = {
    "long": pa.array([1, None, 3], pa.int64()),
    "bool": pa.array([True, None, False]),
    "text": pa.array(["a", None, "ccc"]),
    "binary": pa.array([b"a", b"", None]),
    "none": pa.nulls(3),
    "time": pa.array([TIME, None, TIME], pa.timestamp("us", tz="UTC")),
    "decimal": pa.array([decimal.Decimal("1.50"), None, None], pa.decimal128(10, 2)),
    "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
    "struct": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "word": pa.array(["a", "b", "a"]).dictionary_encode(),
}


def writer(**limits: int) -> ColumnWriter:
    return ColumnWriter(0, Limits(**limits))


def received(encoded: EncodedRows, count: int) -> pa.RecordBatch:
    payload = b"".join(bytes(memoryview(part)) for part in encoded.parts)
    assert len(payload) == encoded.size
    rows = ReceivedRows(
        schema=encoded.schema,
        payload=pa.py_buffer(payload),
        is_stream=encoded.is_stream,
        count=count,
    )
    return rows.read()


def roundtrip(rows: pa.RecordBatch, **limits: int) -> list[pa.RecordBatch]:
    return [received(e, count) for e, count in writer(**limits).encode(rows)]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_every_type_come_as_they_were(name: str) -> None:
    rows = pa.record_batch({"c": COLUMNS[name], "n": pa.array([1, 2, 3])})

    assert roundtrip(rows) == [rows]
    assert roundtrip(rows.slice(1, 2)) == [rows.slice(1, 2)]


def test_large_rows_are_cut_and_come_in_order() -> None:
    table = pa.table({"n": range(20_000), "t": [f"row {n}" for n in range(20_000)]})
    (rows,) = table.combine_chunks().to_batches()

    found = roundtrip(rows, frame_bytes=50_000)

    assert len(found) > 3
    assert pa.Table.from_batches(found) == table


def test_large_rows_are_not_copied_on_either_side() -> None:
    numbers = pa.array(range(50_000))
    ((encoded, count),) = writer().encode(pa.record_batch({"n": numbers}))

    addresses = {p.address for p in encoded.parts if isinstance(p, pa.Buffer)}
    assert numbers.buffers()[1].address in addresses

    payload = pa.py_buffer(b"".join(bytes(memoryview(p)) for p in encoded.parts))
    batch = ReceivedRows(encoded.schema, payload, is_stream=False, count=count).read()
    at = batch["n"].buffers()[1].address
    assert payload.address <= at < payload.address + payload.size


def test_no_rows_make_no_frame() -> None:
    rows = pa.record_batch({"n": pa.array([], pa.int64())})

    assert roundtrip(rows) == []


def test_columns_of_an_edge_may_change() -> None:
    columns, encoder, decoder = writer(), Encoder(), Decoder()
    sent = [
        pa.record_batch({"n": [1]}),
        pa.record_batch({"n": [2, 3]}),
        pa.record_batch({"n": ["a"], "m": [None]}),
        pa.record_batch({"m": pa.array(["x"]).dictionary_encode()}),
        pa.record_batch({"n": [4]}),
    ]
    found = []
    for rows in sent:
        for content, count in columns.encode(rows):
            frame = Rows(
                edge=0,
                epoch=0,
                turn=0,
                size=content.size,
                count=count,
                content=content,
            )
            packed = b"".join(bytes(memoryview(p)) for p in encoder.encode(frame))
            found += read_by(decoder, packed)

    assert found == sent


def read_by(decoder: Decoder, packed: bytes) -> list[pa.RecordBatch]:
    reader = FrameReader(greatest=1 << 20)
    reader.places()[0][: len(packed)] = packed
    frames = [decoder.decode(raw) for raw in reader.received(len(packed))]
    contents = [frame.content for frame in frames if isinstance(frame, Rows)]
    return [c.read() for c in contents if isinstance(c, ReceivedRows)]


def test_frames_that_come_out_too_large_are_cut_further() -> None:
    texts = ["x"] * 99 + ["x" * 5_000]

    found = roundtrip(
        pa.record_batch({"t": texts}), frame_bytes=10_000, greatest_frame_bytes=5_600
    )

    assert [t for rows in found for t in rows["t"].to_pylist()] == texts


def test_a_row_larger_than_any_frame_is_refused() -> None:
    with pytest.raises(InvalidConfigError):
        roundtrip(pa.record_batch({"t": ["x" * 5_000]}), greatest_frame_bytes=1_000)


def test_rows_that_are_damaged_are_refused() -> None:
    ((encoded, count),) = writer().encode(pa.record_batch({"n": [1, 2, 3]}))
    payload = bytes(memoryview(encoded.parts[0]))

    for damaged in (payload[:-8], b"x" * len(payload), b""):
        rows = ReceivedRows(
            encoded.schema, pa.py_buffer(damaged), is_stream=False, count=count
        )
        with pytest.raises(BadFrameError):
            rows.read()
    other = ReceivedRows(
        encoded.schema, pa.py_buffer(payload), is_stream=False, count=9
    )
    with pytest.raises(BadFrameError):
        other.read()
