"""The regions of a flow and the channels between them, for ``riverlock check``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.connectors.channel.ends import ChannelSink
from riverlock.program.regions import region_of

if TYPE_CHECKING:
    from riverlock.program.program import Program

__all__ = ["print_regions", "regions_in"]


def regions_in(flow: Program, regions: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of regions, and the channels that join them."""
    return {
        "paces": {
            region: {} if (pace := flow.paces.get(region)) is None else pace.given
            for region in regions
        },
        "channels": [
            {
                "channel": write.uid,
                "writer": region_of(write),
                "reader": write.sink.reader,
                "bound": None if write.sink.bound is None else str(write.sink.bound),
            }
            for write in flow.writes
            if isinstance(write.sink, ChannelSink)
        ],
    }


def print_regions(found: dict[str, Any]) -> None:
    """Print them as tables, if there are several."""
    if len(found["paces"]) > 1:
        click.echo()
        text.table(
            ("region", "parallelism", "rows per epoch", "epoch target"),
            [(region, *map(str, _pace(p))) for region, p in found["paces"].items()],
        )
    if found["channels"]:
        click.echo()
        text.table(
            ("channel", "from", "to", "at most"),
            [
                (c["channel"], c["writer"], c["reader"], c["bound"] or "no bound")
                for c in found["channels"]
            ],
        )


def _pace(pace: dict[str, Any]) -> tuple[Any, ...]:
    names = ("parallelism", "max_rows_per_epoch", "epoch_target")
    return tuple(pace.get(name, "as the run") for name in names)
