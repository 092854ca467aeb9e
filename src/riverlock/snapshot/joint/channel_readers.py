"""Which other flows read channels of a store, and from where on (format §7.2).

A reader registers before it reads, in the store of the writer, and says now and then
how far all epochs that it keeps have come. The writer needs no access to it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from riverlock.core.errors import SnapshotNotFoundError, StorageNotFoundError
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import READERS, reader_path, records
from riverlock.snapshot.joint.joint_records import ReaderRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.base import Storage

__all__ = ["channel_readers", "forget_reader", "pass_on", "register"]


def channel_readers(storage: Storage) -> Iterator[ReaderRecord]:
    """Yield what reads channels of a store, from other flows."""
    for entry in records(storage.list(READERS)):
        # It may be removed at any time.
        with contextlib.suppress(StorageNotFoundError):
            yield unseal(storage.get(entry.path), ReaderRecord, path=entry.path)


def register(writer: Catalog, reader: ReaderRecord, *, is_new: bool) -> bool:
    """Have the writer keep what a reader needs; False: it is gone already.

    Whoever is registered stays as it is: it keeps no less.

    Args:
        writer: The region that fills the channel.
        reader: Who reads.
        is_new: Whether it has read nothing yet, and so can begin elsewhere. Others find
            out when they read on.
    """
    path = reader_path(reader.flow, reader.uid)
    if not writer.storage.put_if_absent(path, seal(reader)) or not is_new:
        return True
    try:
        writer.check_held(path, epoch=reader.first)
    except SnapshotNotFoundError:
        writer.storage.delete(path)
        return False
    return True


def pass_on(storage: Storage, reader: ReaderRecord) -> None:
    """Let the writer delete what a reader has passed; nothing if it was removed."""
    path = reader_path(reader.flow, reader.uid)
    try:
        known = unseal(storage.get(path), ReaderRecord, path=path)
    except StorageNotFoundError:
        return
    if (known.writer, known.channel) != (reader.writer, reader.channel):
        # It reads another channel now: what the old one has is of no use to it.
        storage.put(path, seal(reader))
    elif reader.first > known.first:
        storage.put(path, seal(msgspec.structs.replace(reader)))


def forget_reader(storage: Storage, flow: str) -> list[ReaderRecord]:
    """Remove a flow that reads channels of a store; return what was removed.

    Raises:
        SnapshotNotFoundError: There is no such reader.
    """
    found = list(channel_readers(storage))
    gone = [r for r in found if flow in (r.flow, r.name)]
    if not gone:
        raise SnapshotNotFoundError.among(
            f"reader {flow!r}",
            store=storage.uri,
            kind="reader",
            names=dict.fromkeys(r.name for r in found),
        )
    for reader in gone:
        storage.delete(reader_path(reader.flow, reader.uid))
    return gone
