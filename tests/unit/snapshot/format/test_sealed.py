from __future__ import annotations

import json

import pytest
from tests.unit.snapshot.builders import manifest

from riverlock.core.errors import SnapshotCorruptedError
from riverlock.snapshot.format.records import Manifest, Run, TimerHeads
from riverlock.snapshot.format.sealed import checksum, seal, unseal

RUN = Run(run=3, host="h", pid=7, token="t", started_us=5)


def test_sealed_record_comes_back_and_is_json_to_others() -> None:
    raw = seal(RUN)

    assert unseal(raw, Run, path="p") == RUN
    first, second, rest = raw.decode().split("\n")
    assert json.loads(first)["token"] == "t"
    assert json.loads(second)["blake2b"] == checksum(first.encode())
    assert rest == ""


def test_every_flipped_byte_is_noticed() -> None:
    raw = seal(RUN)

    for at in range(len(raw)):
        for bit in (1, 32, 128):
            bad = bytearray(raw)
            bad[at] ^= bit
            with pytest.raises(SnapshotCorruptedError):
                unseal(bytes(bad), Run, path="p")


def test_every_truncation_is_noticed() -> None:
    raw = seal(RUN)

    for end in range(len(raw)):
        with pytest.raises(SnapshotCorruptedError) as caught:
            unseal(raw[:end], Run, path="some/path")
        assert caught.value.path == "some/path"


def test_bytes_behind_the_seal_are_noticed() -> None:
    with pytest.raises(SnapshotCorruptedError):
        unseal(seal(RUN) + b"x", Run, path="p")


def test_fields_of_newer_writers_are_ignored() -> None:
    body = json.dumps({**json.loads(seal(RUN).split(b"\n")[0]), "new": 1}).encode()
    raw = body + b'\n{"blake2b":"' + checksum(body).encode() + b'"}\n'

    assert unseal(raw, Run, path="p") == RUN


def test_record_of_another_kind_is_refused() -> None:
    with pytest.raises(SnapshotCorruptedError, match="Manifest"):
        unseal(seal(RUN), Manifest, path="p")


def test_records_are_immutable() -> None:
    with pytest.raises(AttributeError):
        manifest(1).epoch = 2  # type: ignore[misc]
    assert TimerHeads() == TimerHeads(event_us=None)
