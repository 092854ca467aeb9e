"""``STORE@EPOCH``: a store, and perhaps which of its epochs."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["place_argument", "store_and_epoch"]

place_argument = click.argument("place", metavar="STORE[@EPOCH|NAME]")


def store_and_epoch(place: str) -> tuple[str, str | None]:
    """Return the store that was named, and the epoch or name if one was.

    An ``@`` is part of the store if a directory is called so, or if a ``/`` follows.

    >>> store_and_epoch("s3://bucket/a@b/store@v1")
    ('s3://bucket/a@b/store', 'v1')
    """
    store, mark, at = place.rpartition("@")
    if not mark or not store or not at or "/" in at or Path(place).is_dir():
        return place, None
    return store, at
