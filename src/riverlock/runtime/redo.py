"""What a task changed, as a local file: a working copy takes it without decoding rows.

They are caches like the copy itself: damaged, lost or of another layout means none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from riverlock.runtime.layers import DELETED, Layer
from riverlock.snapshot.sealed import checksum
from riverlock.state.store import Changes

if TYPE_CHECKING:
    from pathlib import Path

    from riverlock.state.changelog import ChangeLog

__all__ = ["Redo", "forget_recent", "read_redo", "write_redo"]

_CHECKSUM = 32
# What this process wrote last, by path: in the next epoch the same worker is often the
# one to read it.
_RECENT: dict[Path, tuple[str, Redo]] = {}
_MAX_RECENT = 4


class Redo:
    """The changes of one epoch: rows as a layer, the rest as it is."""

    def __init__(
        self,
        layer: Layer,
        timers: list[tuple[bytes, bytes, bytes | None]],
        expiries: list[bytes],
    ) -> None:
        """Take the parts of a change set."""
        self.layer, self.timers, self.expiries = layer, timers, expiries
        self._made_of: Changes | None = None

    @classmethod
    def of(cls, changes: Changes) -> Redo:
        """Make one of a change set."""
        puts, deletes = changes.puts, changes.deletes
        layer = Layer.of(
            [*puts, *deletes], [*puts.values(), *([DELETED] * len(deletes))]
        )
        made = cls(layer, changes.timers, changes.expiries)
        made._made_of = changes
        return made

    @classmethod
    def of_log(cls, log: ChangeLog) -> Redo:
        """Make one of what a task logged."""
        ids, payloads = log.entries()
        rows = [DELETED if p is None else p for p in payloads]
        return cls(Layer.of(ids, rows), log.timers, log.expiries)

    def changes(self) -> Changes:
        """Return the change set."""
        if self._made_of is not None:
            return self._made_of
        ids, rows = self.layer.ids.to_pylist(), self.layer.rows.to_pylist()
        puts = dict(zip(ids, rows, strict=True))
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


_decode = msgspec.msgpack.Decoder(_File).decode


def write_redo(path: Path, redo: Redo, schema: str) -> None:
    """Keep the changes of an epoch; losing them costs time, nothing else."""
    columns = _packed(redo.layer.ids), _packed(redo.layer.rows)
    file = _File(*columns, redo.timers, redo.expiries)
    body = schema.encode() + msgspec.msgpack.encode(file)
    temporary = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary.open("wb") as out:
            out.write(checksum(body).encode())
            out.write(body)
        temporary.replace(path)
        _RECENT[path] = (schema, redo)
    while len(_RECENT) > _MAX_RECENT:
        del _RECENT[next(iter(_RECENT))]


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
    body, head = memoryview(raw)[_CHECKSUM:], schema.encode()
    # The bytes are of the layout that wrote them; the code may have changed.
    if checksum(body).encode() != raw[:_CHECKSUM] or body[: len(head)] != head:
        return None
    file = _decode(body[len(head) :])
    layer = Layer(_unpacked(*file.ids), _unpacked(*file.rows))
    return Redo(layer, file.timers, file.expiries)


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
