"""What is in a channel between two regions, and was not read: by manifests alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.snapshot.format.records import CHANNEL
from riverlock.snapshot.timeline import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["Sent", "Unread", "position_in", "sent_by", "sent_since", "unread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What one epoch of a writer has added to a channel."""

    epoch: int
    rows: int
    bytes: int
    decided_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What is in a channel and was not read.

    Attributes:
        rows: Rows.
        bytes: Bytes of their files.
        since_us: When the oldest of them were decided; None: there are none.
    """

    rows: int = 0
    bytes: int = 0
    since_us: int | None = None

    def age_us(self, now_us: int) -> int:
        """Return how long the oldest rows have waited."""
        return 0 if self.since_us is None else max(0, now_us - self.since_us)


def unread(sent: Iterable[Sent], position: int) -> Unread:
    """Return what of these epochs a reader at a position has not read."""
    left = [each for each in sent if each.epoch >= position and each.rows]
    return Unread(
        rows=sum(each.rows for each in left),
        bytes=sum(each.bytes for each in left),
        since_us=min((each.decided_us for each in left), default=None),
    )


def sent_by(manifest: Manifest, channel: str) -> Sent:
    """Return what an epoch has added to a channel."""
    output = manifest.outputs.get(channel)
    is_there = output is not None and output.kind == CHANNEL
    tokens = output.tokens if output is not None and is_there else ()
    return Sent(
        epoch=manifest.epoch,
        rows=output.rows if output is not None and is_there else 0,
        bytes=sum(token["bytes"] for token in tokens),
        decided_us=manifest.decided_us,
    )


def sent_since(
    catalog: Catalog, newest: Manifest, channel: str, position: int
) -> Iterator[Sent]:
    """Yield what the epochs from a position on have added, those that count.

    Epochs that a restore has undone do not, and those that are gone were read.
    """
    for first, last in spans(newest):
        for epoch in range(max(first, position), last + 1):
            is_newest = epoch == newest.epoch
            found = newest if is_newest else catalog.find_manifest(epoch)
            if found is not None:
                yield sent_by(found, channel)


def position_in(reader: Manifest | None, writer: str, channel: str) -> int:
    """Return the first epoch of a writer that a reader's newest epoch has not read."""
    if reader is None:
        return 0
    for span in reader.inputs.values():
        end = span.end
        if not isinstance(end, dict) or "region" not in end:
            continue
        if (end["region"], end.get("channel")) == (writer, channel):
            position: int = end["epoch"]
            return position
    return 0
