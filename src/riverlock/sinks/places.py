"""Where sinks of files write, looked at before a start changes anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError
from riverlock.core.paths import last_directory
from riverlock.sinks.file_listing import foreign, owner_of
from riverlock.sinks.files import FileSink
from riverlock.snapshot.layout import FLOW
from riverlock.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.sinks.base import Sink
    from riverlock.snapshot.catalog import Catalog

__all__ = ["check_places"]


def check_places(sinks: Mapping[str, Sink], catalog: Catalog) -> None:
    """Refuse directories that are others than were meant, or of another store.

    Args:
        sinks: The sinks of the flow, by uid.
        catalog: The store, which may be yet to be made.

    Raises:
        InvalidConfigError: A directory belongs to another store, or a path that is
            not absolute meant another one when the flow last ran.
    """
    flow = catalog.flow() if catalog.storage.exists(FLOW) else None
    for uid, sink in sinks.items():
        if not isinstance(sink, FileSink) or "://" in sink.path:
            continue
        found = owner_of(LocalStorage(Path(sink.path)))
        if found is None:
            _check_meant(uid, sink, catalog)
        elif flow is None or found.get("flow") != flow.id:
            origin = None if flow is None or flow.origin is None else flow.origin.flow
            raise foreign(sink.path, uid, found, origin=origin)


def _check_meant(uid: str, sink: FileSink, catalog: Catalog) -> None:
    """Refuse a new directory whose name had another meaning."""
    meant = _last_root(uid, catalog)
    begun = None if meant is None else last_directory(sink.given, meant)
    if begun is not None and meant != sink.path:
        raise InvalidConfigError(
            f"path {sink.given!r} of sink {uid!r}",
            expected=f"{meant}, which it meant when the flow last ran, in {begun}",
            found=f"{sink.path}, which has nothing of it",
            hint=f"nothing was changed; start it in {begun}, or write the whole path",
        )


def _last_root(uid: str, catalog: Catalog) -> str | None:
    """Return the directory that the last epoch with rows for a sink went to."""
    for epoch in reversed(catalog.epochs()):
        output = catalog.manifest(epoch).outputs.get(uid)
        for token in () if output is None else output.tokens:
            if isinstance(token, dict) and "root" in token:
                return str(token["root"])
    return None
