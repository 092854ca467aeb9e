"""What reads the sources of a region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.connectors.channel.ends import ChannelSource
from riverlock.connectors.channel.reader import ChannelReader
from riverlock.program.graph import Read

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.types import Schema
    from riverlock.driver.engine import Engine
    from riverlock.program.program import Program
    from riverlock.storage.base import Storage

__all__ = ["readers_of"]


def readers_of(
    flow: Program,
    engine: Engine,
    storage: Storage,
    stack: ExitStack,
    columns: Mapping[str, Schema] | None = None,
) -> dict[str, Reader]:
    """Return what reads the sources of a region, until the stack is closed.

    Args:
        flow: The program of the region.
        engine: What runs it.
        storage: The store.
        stack: What closes them.
        columns: The columns of channels that it reads, if they are known, by name.
    """
    found = {}
    for node in flow.find(Read):
        reader = engine.reader(node, storage)
        found[node.uid] = reader
        stack.callback(reader.close)
        if isinstance(reader, ChannelReader) and isinstance(node.source, ChannelSource):
            known = None if columns is None else columns.get(reader.channel)
            # Those of a writer in another process are in the store.
            if known is not None:
                reader.take_columns(known)
    return found
