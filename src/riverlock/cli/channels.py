"""What waits in the channels between regions, for ``riverlock status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.cli import text
from riverlock.snapshot.backlog import position_in, sent_since, unread
from riverlock.snapshot.format.channels import channels_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from riverlock.snapshot.catalog import Catalog

__all__ = ["channels_between", "print_channels"]


def channels_between(catalog: Catalog, regions: Iterable[str]) -> list[dict[str, Any]]:
    """Return each channel with what its reader has not read."""
    now_us = text.now_us()
    return [each for name in regions for each in _written_by(catalog.of(name), now_us)]


def _written_by(writer: Catalog, now_us: int) -> Iterator[dict[str, Any]]:
    newest = writer.newest()
    if newest is None:
        return
    for channel, region, *_ in channels_of(newest):
        reader = writer.of(region).newest()
        position = position_in(reader, writer.region, channel)
        sent = sent_since(writer, newest, channel, position)
        waits = unread(sent, position)
        yield {
            "channel": channel,
            "writer": writer.region,
            "reader": region,
            "written": newest.epoch,
            "read": position - 1 if position else None,
            "rows": waits.rows,
            "bytes": waits.bytes,
            "oldest_seconds": waits.age_us(now_us) / 1e6,
        }


def print_channels(channels: list[dict[str, Any]]) -> None:
    """Print them as a table."""
    text.table(
        ("channel", "from", "to", "written", "read", "waiting", "size", "oldest"),
        [
            (
                each["channel"],
                each["writer"],
                each["reader"],
                str(each["written"]),
                "-" if each["read"] is None else str(each["read"]),
                text.counted(each["rows"], "record"),
                text.size(each["bytes"]),
                text.duration(each["oldest_seconds"]) if each["rows"] else "",
            )
            for each in channels
        ],
    )
