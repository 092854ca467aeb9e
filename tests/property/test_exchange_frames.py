"""Frames from bytes in pieces of any size; and from bytes that are damaged."""

from __future__ import annotations

import contextlib
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riverlock.exchange.limits import Limits
from riverlock.exchange.protocol.frames import (
    Cancel,
    Credit,
    Frame,
    Goodbye,
    Marker,
    Rows,
)
from riverlock.exchange.wire.codec import Decoder, Encoder
from riverlock.exchange.wire.columns import ColumnWriter, EncodedRows, ReceivedRows
from riverlock.exchange.wire.header import CHECKED, HEADER_BYTES, BadFrameError
from riverlock.exchange.wire.reading import FrameReader

GREATEST = 1 << 20
numbers = st.integers(0, 2**63 - 1)
edges = st.integers(0, 2**16 - 1)
turns = st.integers(-1, 2**63 - 1)
small = st.one_of(
    st.builds(
        Marker, edge=edges, epoch=numbers, turn=turns, frames=numbers, rows=numbers
    ),
    st.builds(Credit, edge=edges, epoch=numbers, turn=turns, bytes=numbers),
    st.builds(Cancel, epoch=numbers, turn=turns),
    st.builds(Goodbye),
)


def _encoded(count: int) -> EncodedRows:
    texts = ["x" * (n % 9) for n in range(count)]
    batch = pa.record_batch({"n": range(count), "t": texts})
    ((encoded, _),) = ColumnWriter(0, Limits(frame_bytes=GREATEST)).encode(batch)
    return encoded


ENCODED = {count: _encoded(count) for count in (1, 7, 500, 20_000)}


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Rows of one of two edges, from one to twenty thousand."""
    count = draw(st.sampled_from(sorted(ENCODED)))
    encoded = ENCODED[count]
    return Rows(
        edge=draw(st.integers(0, 1)),
        epoch=draw(numbers),
        turn=draw(turns),
        size=encoded.size,
        count=count,
        content=encoded,
    )


def written(frames: list[Frame]) -> bytes:
    encoder = Encoder()
    parts = [part for frame in frames for part in encoder.encode(frame)]
    return b"".join(bytes(memoryview(part)) for part in parts)


def read(stream: bytes, sizes: list[int], space: int = 4_096) -> list[Frame]:
    """Receive bytes in pieces, as many at a time as ``sizes`` says, again and again."""
    reader, decoder = FrameReader(greatest=GREATEST, space=space), Decoder()
    found, at, turn = list[Frame](), 0, 0
    while at < len(stream):
        left = sizes[turn % len(sizes)]
        turn, count = turn + 1, 0
        for place in reader.places():
            here = stream[at : at + min(left, len(place))]
            place[: len(here)] = here
            at, left, count = at + len(here), left - len(here), count + len(here)
        for raw in reader.received(count):
            frame = decoder.decode(raw)
            found += [] if frame is None else [frame]
    assert reader.is_between_frames
    return found


def plain(frame: Frame) -> object:
    """Return a frame such that it can be compared."""
    if not isinstance(frame, Rows):
        return frame
    content = frame.content
    if isinstance(content, EncodedRows):
        payload = b"".join(bytes(memoryview(part)) for part in content.parts)
    else:
        assert isinstance(content, ReceivedRows)
        payload = content.payload.to_pybytes()
    return (frame.edge, frame.epoch, frame.turn, frame.size, frame.count, payload)


@given(
    frames=st.lists(st.one_of(small, rows()), max_size=6),
    sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=4),
    space=st.sampled_from([100, 4_096, 100_000]),
)
def test_frames_come_as_they_were_however_they_are_cut(
    frames: list[Frame], sizes: list[int], space: int
) -> None:
    found = read(written(frames), [max(s, 200) for s in sizes], space)

    assert [plain(f) for f in found] == [plain(f) for f in frames]


def test_byte_by_byte() -> None:
    frames: list[Frame] = [Cancel(epoch=1, turn=2), Goodbye()]

    assert read(written(frames), [1]) == frames


@given(frames=st.lists(st.one_of(small, rows()), min_size=1, max_size=3), seed=numbers)
def test_a_flipped_bit_is_found_or_within_long_columns(
    frames: list[Frame], seed: int
) -> None:
    chance = random.Random(seed)
    stream = bytearray(written(frames))
    at = chance.randrange(len(stream))
    if chance.random() < 0.5:
        at %= 600  # where headers and the beginnings of columns are
        at %= len(stream)
    stream[at] ^= 1 << chance.randrange(8)

    try:
        found = read(bytes(stream), [10_000])
    except (BadFrameError, AssertionError):
        return  # refused, or still waiting for the rest of what is none
    # It may only be beyond what is checked of a long payload.
    assert len(found) == len(frames)
    for frame, sent in zip(found, frames, strict=True):
        if plain(frame) != plain(sent):
            assert isinstance(frame, Rows)
            assert frame.size > CHECKED
            _read_anyway(frame.content)


def _read_anyway(content: object) -> None:
    assert isinstance(content, ReceivedRows)
    with contextlib.suppress(BadFrameError, pa.ArrowException):
        content.read().validate(full=True)


@given(frames=st.lists(st.one_of(small, rows()), min_size=1, max_size=3), seed=numbers)
def test_of_what_is_cut_off_nothing_is_made_up(frames: list[Frame], seed: int) -> None:
    stream = written(frames)
    end = seed % len(stream)
    reader, decoder, at = FrameReader(greatest=GREATEST), Decoder(), 0
    found: list[Frame] = []

    while at < end:
        place = reader.places()[0]
        here = stream[at : min(end, at + len(place))]
        place[: len(here)] = here
        at += len(here)
        decoded = [decoder.decode(raw) for raw in reader.received(len(here))]
        found += [frame for frame in decoded if frame is not None]

    assert [plain(f) for f in found] == [plain(f) for f in frames[: len(found)]]
    assert len(found) < len(frames)


@given(noise=st.binary(min_size=HEADER_BYTES, max_size=2_000))
def test_noise_is_refused_and_takes_no_memory(noise: bytes) -> None:
    before = pa.total_allocated_bytes()

    with pytest.raises(BadFrameError):
        read(noise, [len(noise)])

    assert pa.total_allocated_bytes() == before
