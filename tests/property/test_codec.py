from __future__ import annotations

import math
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import TYPES, values

from riverlock.core.types import Type, type_of
from riverlock.core.values.json_values import from_json, to_json
from riverlock.snapshot.format.state_files import encode_table
from riverlock.state.codec import codec_of, encode


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Type, list[Any]]:
    kind = draw(TYPES)
    return kind, draw(st.lists(values(kind), max_size=4))


@given(typed_values())
def test_codec_gives_back_what_was_assigned(case: tuple[Type, list[Any]]) -> None:
    kind, found = case
    codec = codec_of(kind)
    decode = codec.decoder()

    for value in found:
        normal = codec.checked(value)
        assert decode(encode(normal)) == normal
        assert codec.checked(normal) == normal  # normal is normal


@given(typed_values())
def test_codec_and_parquet_agree_to_the_byte(case: tuple[Type, list[Any]]) -> None:
    kind, found = case
    codec = codec_of(kind)
    normal = [codec.checked(v) for v in found]
    out = codec.to_arrow
    column = [v if v is None or out is None else out(v) for v in normal]

    table = pa.table([pa.array(column, kind.to_arrow())], names=["value"])
    read = pq.read_table(pa.BufferReader(encode_table(table)))
    back = codec.from_arrow(read["value"].to_pylist())

    assert list(map(encode, back)) == list(map(encode, normal))


@given(typed_values())
def test_values_survive_their_json(case: tuple[Type, list[Any]]) -> None:
    kind, found = case
    codec = codec_of(kind)
    for value in found:
        normal = codec.checked(value)
        out = codec.to_arrow
        plain = normal if normal is None or out is None else out(normal)

        text = msgspec.json.encode(to_json(kind, plain))
        back = from_json(kind, msgspec.json.decode(text))

        assert encode(codec.checked(back)) == encode(normal)


@given(TYPES)
def test_type_survives_its_text(kind: Type) -> None:
    assert type_of(kind.ddl) == kind


def test_codec_keeps_nan_and_signed_zero() -> None:
    codec = codec_of(type_of("double"))
    decode = codec.decoder()

    assert math.isnan(decode(encode(codec.checked(math.nan))))
    assert math.copysign(1, decode(encode(codec.checked(-0.0)))) == -1
