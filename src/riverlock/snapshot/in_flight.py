"""What is between the regions of a cut: rows that one has sent and the other not read.

They are files that the writer's epochs list. A cut refers to them, and copies nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.snapshot.format.channels import channel_ends
from riverlock.snapshot.format.records import CHANNEL, InFlight
from riverlock.snapshot.timeline import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import (
        ChannelColumns,
        Manifest,
        SinkOutput,
    )

__all__ = ["Between", "alignment_us", "between"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What is in flight in a channel.

    Attributes:
        span: Where, and how much.
        source: The uid under which the reader has the channel.
        columns: What the rows look like; None: an older writer has not said it.
        outputs: What epochs of the writer list for the channel, by their numbers.
    """

    span: InFlight
    source: str
    columns: ChannelColumns | None
    outputs: Mapping[int, SinkOutput]

    @property
    def files(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The files of the rows in their order, each with its epoch."""
        for epoch, output in self.outputs.items():
            for token in output.tokens:
                yield epoch, token


def between(catalog: Catalog, manifests: Iterable[Manifest]) -> tuple[Between, ...]:
    """Return what is in flight between one epoch of each region, by channel.

    Reads the writers' epochs that their readers have not read.

    Raises:
        SnapshotNotFoundError: One of them is no longer retained.
    """
    at = {manifest.region: manifest for manifest in manifests}
    found = []
    for reader in at.values():
        for source, writer, channel, first in channel_ends(reader):
            if writer in at:
                outputs = dict(_unread(catalog, at[writer], channel, first))
                known = at[writer].outputs.get(channel)
                span = InFlight(
                    channel=channel,
                    writer=writer,
                    reader=reader.region,
                    first=first,
                    end=max(first, at[writer].epoch + 1),
                    rows=sum(o.rows for o in outputs.values()),
                    bytes=sum(_bytes(o) for o in outputs.values()),
                )
                found.append(
                    Between(
                        span=span,
                        source=source,
                        columns=None if known is None else known.columns,
                        outputs=outputs,
                    )
                )
    return tuple(found)


def _unread(
    catalog: Catalog, writer: Manifest, channel: str, first: int
) -> Iterator[tuple[int, SinkOutput]]:
    """Yield what epochs list that led to the writer's, from the first on."""
    for a, b in spans(writer):
        for epoch in range(max(a, first), b + 1):
            manifest = writer
            if epoch != writer.epoch:
                manifest = catalog.of(writer.region).manifest(epoch)
            output = manifest.outputs.get(channel)
            if output is not None and output.kind == CHANNEL:
                yield epoch, output


def _bytes(output: SinkOutput) -> int:
    return sum(token["bytes"] for token in output.tokens)


def alignment_us(manifests: Iterable[Manifest], asked_us: int) -> dict[str, int]:
    """Return how long each region took from the first marker it saw to its own.

    Markers begin in regions that read no other: there it is the time since somebody
    asked for the cut.
    """
    at = {manifest.region: manifest for manifest in manifests}
    found = {}
    for region, manifest in at.items():
        seen = [
            at[writer].decided_us
            for _, writer, _, _ in channel_ends(manifest)
            if writer in at and writer != region
        ]
        found[region] = max(0, manifest.decided_us - min(seen, default=asked_us))
    return found
