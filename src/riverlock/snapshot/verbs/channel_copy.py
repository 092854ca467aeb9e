"""Channels of a fork: what has landed and was not read, and where to land from.

The bookkeeping of Spark's query is copied up to the last segment that is: both stores
then read the stream on from there, each by a query of its own.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError, StorageNotFoundError
from riverlock.snapshot.format.channels import Channel, positions
from riverlock.snapshot.format.state_files import read_file

if TYPE_CHECKING:
    from riverlock.snapshot.format.channels import Segment
    from riverlock.snapshot.format.records import Manifest
    from riverlock.storage.base import Storage

__all__ = ["check_channels", "copy_channels"]

# Spark writes one file per step in these, and we in the last; what it has in others
# grows with them.
_BY_STEP = ("offsets", "commits", "landed")


def check_channels(storage: Storage, target: Manifest) -> None:
    """Refuse an epoch whose positions do not say which channel they belong to.

    Raises:
        InvalidConfigError: They were written before channels had names there.
    """
    if any(name is None for name, _, _ in positions(target)):
        raise InvalidConfigError(
            f"fork of {storage.uri}",
            expected="positions that name their channel",
            found=f"epoch {target.epoch}, where an older version wrote them without",
            hint="nothing was changed; begin the new flow with a store of its own",
        )


def copy_channels(old: Storage, new: Storage, target: Manifest) -> None:
    """Copy the channels that an epoch read; may be repeated."""
    for name, _, end in positions(target):
        assert name is not None, "refused before"
        _copy_channel(Channel(old, name), Channel(new, name), end)


def _copy_channel(old: Channel, new: Channel, end: int) -> None:
    """Copy segments from ``end`` on, and the one before: the query resumes there."""
    last = None
    for number in old.numbers():
        segment = old.segment(number) if number >= end - 1 else None
        if segment is not None:
            for file in segment.files:
                data = read_file(
                    old.storage,
                    file["path"],
                    size=file["bytes"],
                    expected=file["checksum"],
                )
                new.storage.put(file["path"], data)
            new.append(segment)
            last = segment
    if last is not None:
        _copy_landing(old, new, last)


def _copy_landing(old: Channel, new: Channel, last: Segment) -> None:
    folder = old.landing(last.writer)
    for entry in old.storage.list(folder):
        part, _, name = entry.path.removeprefix(folder).partition("/")
        step = name.partition("-")[0]
        if part in _BY_STEP and not (step.isdecimal() and int(step) <= last.step):
            continue
        try:
            data = old.storage.get(entry.path)
        except StorageNotFoundError:
            continue  # of a step long ago: Spark tidies up as it goes on
        if entry.path == f"{folder}metadata":
            # Spark runs no two queries with one identity.
            data = json.dumps({"id": str(uuid.uuid4())}).encode()
        new.storage.put(entry.path, data)
