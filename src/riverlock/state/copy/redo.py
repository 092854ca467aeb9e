"""What a task changed, as a local file: a working copy takes it without decoding rows.

They are caches like the copy itself: damaged, lost or of another layout means none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from riverlock.core.values.known_types import known
from riverlock.snapshot.format.sealed import checksum
from riverlock.state.copy.layers import DELETED, Layer
from riverlock.state.store import Changes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Redo", "forget_recent", "read_redo", "write_redo"]

_CHECKSUM = 32
_FORMAT = "redo-2 "
_MAX_BYTES = 1 << 30
# What this process wrote last, by path: in the next epoch the same worker is often the
# one to read it.
_RECENT: dict[Path, tuple[str, Redo]] = {}
_MAX_RECENT = 4


class Redo:
    """The changes of one epoch: entries as a layer, the rest as it is."""

    def __init__(
        self,
        entries: tuple[list[bytes], list[bytes]] | Layer,
        timers: list[tuple[bytes, bytes, bytes | None]],
        expiries: list[bytes],
    ) -> None:
        """Take ids and rows, with DELETED for entries that are gone."""
        self._entries = entries
        self.timers, self.expiries = timers, expiries

    @classmethod
    def of(cls, changes: Changes) -> Redo:
        """Make one of a change set."""
        puts, deletes = changes.puts, changes.deletes
        gone = [DELETED] * len(deletes)
        entries = [*puts, *deletes], [*puts.values(), *gone]
        return cls(entries, changes.timers, changes.expiries)

    @cached_property
    def fits(self) -> bool:
        """Whether it can be a layer: Arrow's columns end at 2 GiB."""
        if isinstance(self._entries, Layer):
            return True
        return all(sum(map(len, column)) < _MAX_BYTES for column in self._entries)

    @cached_property
    def layer(self) -> Layer:
        """The entries as columns; only if it fits."""
        entries = self._entries
        return entries if isinstance(entries, Layer) else Layer.of(*entries)

    def rows(self) -> dict[bytes, bytes]:
        """Return the rows by id, DELETED ones too."""
        entries = self._entries
        lists = entries.as_lists() if isinstance(entries, Layer) else entries
        return dict(zip(*lists, strict=True))

    def changes(self) -> Changes:
        """Return the change set."""
        puts = self.rows()
        deletes = [i for i, row in puts.items() if row == DELETED]
        for entry_id in deletes:
            del puts[entry_id]
        return Changes(puts, deletes, self.timers, self.expiries)


_Column: TypeAlias = tuple[memoryview, memoryview]


class _File(msgspec.Struct, array_like=True):
    """The columns as Arrow has them: where values end, and the values."""

    ids: _Column
    rows: _Column
    timers: list[tuple[bytes, bytes, bytes | None]]
    expiries: list[bytes]


_decode = msgspec.msgpack.Decoder(known(_File)).decode


def write_redo(path: Path, redo: Redo, schema: str) -> None:
    """Keep the changes of an epoch; losing them costs time, nothing else."""
    if not redo.fits:
        return
    columns = _packed(redo.layer.ids), _packed(redo.layer.rows)
    file = _File(*columns, redo.timers, redo.expiries)
    body = _head(schema) + msgspec.msgpack.encode(file)
    temporary = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary.open("wb") as out:
            out.write(checksum(body).encode())
            out.write(body)
        temporary.replace(path)
        _RECENT[path] = (schema, redo)
    # Other regions may be threads of this process: a copy of the keys, and no error if
    # one is gone.
    for oldest in list(_RECENT)[:-_MAX_RECENT]:
        _RECENT.pop(oldest, None)


def forget_recent() -> None:
    """Know no more than any other process does."""
    _RECENT.clear()


def read_redo(path: Path, schema: str) -> Redo | None:
    """Return the changes of an epoch, if they are there, whole and of this layout."""
    known = _RECENT.pop(path, None)
    if known is not None and known[0] == schema:
        return known[1]
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    body, head = memoryview(raw)[_CHECKSUM:], _head(schema)
    # The bytes are of the code and the layout that wrote them; both may have changed.
    if checksum(body).encode() != raw[:_CHECKSUM] or body[: len(head)] != head:
        return None
    try:
        file = _decode(body[len(head) :])
    except msgspec.MsgspecError:
        return None
    layer = Layer(_unpacked(*file.ids), _unpacked(*file.rows))
    return Redo(layer, file.timers, file.expiries)


def _head(schema: str) -> bytes:
    return f"{_FORMAT}{schema}".encode()


def _packed(column: pa.BinaryArray) -> _Column:
    _, ends, values = column.buffers()
    assert column.offset == 0
    ends = memoryview(ends)[: 4 * (len(column) + 1)] if len(column) else memoryview(b"")
    return ends, memoryview(values or b"")


def _unpacked(ends: memoryview, values: memoryview) -> pa.BinaryArray:
    # A copy, because Arrow wants numbers at addresses that are multiples of theirs.
    numbers = np.frombuffer(ends, dtype=np.int32).copy()
    if not len(numbers):
        return pa.array([], pa.binary())
    buffers = [None, pa.py_buffer(numbers), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(numbers) - 1, buffers)
