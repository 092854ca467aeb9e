"""Durable channels: a FIFO log of segments, read like a source, written like a sink.

``channels/<name>/segments/<n>.json`` decides segment ``n`` and lists its Parquet files
(format §7). Segments are contiguous; the put-if-absent of the record is the commit,
exactly as for epochs. Those that no retained epoch read are deleted, oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import StorageNotFoundError
from riverlock.snapshot.format.records import CHANNEL, PUBLISHED, Record
from riverlock.snapshot.format.sealed import seal, unseal
from riverlock.snapshot.format.store_layout import channel_path, number_in, numbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from riverlock.snapshot.format.records import Manifest
    from riverlock.storage.base import Entry, Storage

__all__ = [
    "Channel",
    "Segment",
    "channel_ends",
    "channel_positions",
    "channels_of",
    "passed_files",
    "positions",
    "published",
]


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

    def landing(self, writer: str) -> str:
        """Return the folder for the bookkeeping of a query that fills the channel."""
        return f"{self.root}landing/{writer}/"

    def _path(self, number: int) -> str:
        return f"{self.root}segments/{number:012d}.json"

    def numbers(self) -> list[int]:
        """Return the numbers of the segments that are kept, in order."""
        listed = self.storage.list(f"{self.root}segments/")
        return [number for number, _ in numbered(listed)]

    def end(self) -> int:
        """Return the number that the next segment will have."""
        return max(self.numbers(), default=-1) + 1

    def end_after(self, known: int) -> int:
        """Return the same without listing: all before ``known`` existed."""
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


def positions(manifest: Manifest) -> Iterator[tuple[str | None, int, int]]:
    """Yield each channel that an epoch read: its name, from where, to where.

    The name is None where the manifest has none, as older versions wrote it.
    """
    for span in manifest.inputs.values():
        if isinstance(span.start, dict) and "segment" in span.start:
            name = span.start.get("channel")
            yield name, span.start["segment"], span.end["segment"]


def channels_of(manifest: Manifest) -> Iterator[tuple[str, str, bool]]:
    """Yield each channel that an epoch fills: its reader, and if it closes a loop."""
    for uid, output in manifest.outputs.items():
        if output.kind == CHANNEL and output.place != PUBLISHED:
            yield uid, output.place.removeprefix("region "), output.is_back


def published(manifest: Manifest) -> Iterator[str]:
    """Yield each channel that an epoch fills for other flows (§7.2)."""
    for uid, output in manifest.outputs.items():
        if output.kind == CHANNEL and output.place == PUBLISHED:
            yield uid


def channel_positions(manifest: Manifest) -> Iterator[tuple[str, str, int]]:
    """Yield each channel of a region that an epoch reads: region, name, from where.

    Channels of other flows are not among them.
    """
    for span in manifest.inputs.values():
        if _is_inside(span.start):
            start = span.start
            yield start["region"], start["channel"], start["epoch"]


def channel_ends(manifest: Manifest) -> Iterator[tuple[str, str, str, int]]:
    """Yield each channel of a region that an epoch read: source, region, name, end.

    The end is the first epoch of that region that was not read yet. Channels of other
    flows are not among them.
    """
    for uid, span in manifest.inputs.items():
        if _is_inside(span.end):
            end = span.end
            yield uid, end["region"], end["channel"], end["epoch"]


def _is_inside(offset: Any) -> bool:
    """Tell whether an offset is one of a channel of the same flow."""
    is_channel = isinstance(offset, dict) and {"region", "channel"} <= offset.keys()
    return is_channel and "flow" not in offset


def passed_files(storage: Storage, manifests: Iterable[Manifest]) -> list[Entry]:
    """Return the files of segments that none of these epochs read, records first.

    The last segment of a channel stays: its number and its writer's step say where to
    continue.
    """
    needed: dict[str, int] = {}
    for manifest in manifests:
        for name, start, _ in positions(manifest):
            if name is None:
                return []
            needed[name] = min(start, needed.get(name, start))
    passed: list[Entry] = []
    for name, first in needed.items():
        channel = Channel(storage, name)
        bound = min(first, channel.end() - 1)
        records, data = f"{channel.root}segments/", f"{channel.root}data/"
        passed += [e for n, e in numbered(storage.list(records)) if n < bound]
        for entry in storage.list(data):
            number = number_in(entry.path.removeprefix(data))
            if number is not None and number < bound:
                passed.append(entry)
    return passed
