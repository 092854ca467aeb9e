from __future__ import annotations

import pytest

from riverlock.exchange.wire.header import (
    HEADER_BYTES,
    BadFrameError,
    Header,
    Kind,
    checksum,
    pack,
    unpack,
)

HEADER = Header(
    kind=Kind.ROWS,
    flags=1,
    edge=513,
    length=1_000_000,
    payload_sum=0xDEADBEEF,
    epoch=2**40,
    turn=-1,
    count=77,
)


def packed() -> bytearray:
    return bytearray(pack(HEADER, length=1_000_000, payload_sum=0xDEADBEEF))


def test_a_header_comes_as_it_was() -> None:
    raw = packed()

    assert len(raw) == HEADER_BYTES == 40
    assert unpack(memoryview(raw), greatest=2**30) == HEADER


def test_every_flipped_bit_is_found() -> None:
    for bit in range(HEADER_BYTES * 8):
        raw = packed()
        raw[bit // 8] ^= 1 << bit % 8

        with pytest.raises(BadFrameError):
            unpack(memoryview(raw), greatest=2**32)


def test_a_payload_that_is_too_long_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(BadFrameError, match="at most 999999"):
        unpack(memoryview(packed()), greatest=999_999)


def test_another_version_is_called_so() -> None:
    raw = packed()
    raw[3:4] = b"2"

    with pytest.raises(BadFrameError, match="another version"):
        unpack(memoryview(raw), greatest=2**30)


def test_the_checksum_does_not_depend_on_how_a_payload_is_cut() -> None:
    payload = bytes(range(256)) * 40

    assert checksum([payload]) == checksum(
        [payload[:100], payload[100:5_000], b"", b"z"]
    )
    assert checksum([payload]) != checksum([b"y", payload])
