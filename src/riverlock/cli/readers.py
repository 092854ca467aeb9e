"""``riverlock readers``."""

from __future__ import annotations

import click

from riverlock.cli import text
from riverlock.cli.command import command, open_catalog, store_argument

__all__ = ["readers"]


@command("readers")
@store_argument
@click.option("--forget", metavar="FLOW", help="Remove a flow, by its name or id.")
def readers(*, store: str, forget: str | None, as_json: bool) -> None:
    r"""List the flows that read channels of a store.

    Each keeps the epochs that it may still read. Use --forget for a flow that will not
    come back: what it has not read may then be deleted.

    \b
    Examples:
      riverlock readers store
      riverlock readers store --forget billing
    """
    from riverlock.snapshot.joint.channel_readers import (
        channel_readers,
        forget_reader,
    )

    storage = open_catalog(store).storage
    if forget is not None:
        forget_reader(storage, forget)
    found = list(channel_readers(storage))
    if as_json:
        text.print_json(
            [
                {
                    "flow": r.flow,
                    "name": r.name,
                    "store": r.store,
                    "region": r.region,
                    "source": r.uid,
                    "writer": r.writer,
                    "channel": r.channel,
                    "epoch": r.first,
                }
                for r in found
            ]
        )
        return
    if not found:
        click.echo("no other flow reads from this store")
        return
    text.table(
        ("flow", "store", "region", "channel", "from epoch", "id"),
        [[r.name, r.store, r.region, r.channel, r.first, r.flow] for r in found],
    )
