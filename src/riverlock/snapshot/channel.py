"""Durable channels: a FIFO log of segments, read like a source, written like a sink.

``channels/<name>/segments/<n>.json`` decides segment ``n`` and lists its Parquet files
(format §7). Segments are contiguous from 0; the put-if-absent of the record is the
commit, exactly as for epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.layout import channel_path
from riverlock.snapshot.records import Record
from riverlock.snapshot.sealed import seal, unseal

if TYPE_CHECKING:
    from riverlock.storage.base import Storage

__all__ = ["Channel", "Segment"]


class Segment(Record, frozen=True, kw_only=True):
    """One step of a channel."""

    number: int
    files: tuple[dict[str, Any], ...]
    rows: int
    # Who wrote it: a writer that repeats its work finds its own mark.
    writer: str
    step: int
    schema: str


@dataclass(frozen=True)
class Channel:
    """The segments of one channel."""

    storage: Storage
    name: str

    @property
    def root(self) -> str:
        """The folder of the channel."""
        return channel_path(self.name)

    def _path(self, number: int) -> str:
        return f"{self.root}segments/{number:012d}.json"

    def count(self, known: int = 0) -> int:
        """Return how many segments there are, given that ``known`` exist."""
        while self.storage.exists(self._path(known)):
            known += 1
        return known

    def segment(self, number: int) -> Segment | None:
        """Return a segment, or None."""
        path = self._path(number)
        try:
            return unseal(self.storage.get(path), Segment, path=path)
        except StorageNotFoundError:
            return None

    def append(self, segment: Segment) -> bool:
        """Decide a segment; False if its number is taken."""
        return self.storage.put_if_absent(self._path(segment.number), seal(segment))
