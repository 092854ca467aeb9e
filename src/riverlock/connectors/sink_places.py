"""Where sinks write, checked before a start changes anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.connectors.databases.sink import SqlSink
from riverlock.connectors.delta.sink import DeltaSink
from riverlock.connectors.files.listing import foreign, owner_of
from riverlock.connectors.files.sink import FileSink
from riverlock.core import paths
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.sink import Sink
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["check_meant", "check_owners"]


def check_owners(sinks: Mapping[str, Sink], catalog: Catalog) -> None:
    """Refuse output directories that belong to another store.

    Args:
        sinks: The sinks of the flow, by uid.
        catalog: The store, which may not exist yet.

    Raises:
        InvalidConfigError: One does; nothing was changed there.
    """
    flow = catalog.flow() if catalog.storage.exists(FLOW) else None
    for uid, sink in sinks.items():
        found = _owner(sink)
        if found is not None and (flow is None or found.get("flow") != flow.id):
            origin = None if flow is None or flow.origin is None else flow.origin.flow
            raise foreign(_path(sink), uid, found, origin=origin)


def check_meant(sinks: Mapping[str, Sink], newest: Manifest) -> None:
    """Refuse places that a relative path did not mean before.

    Args:
        sinks: The sinks of the flow, by uid.
        newest: The newest epoch.

    Raises:
        InvalidConfigError: The flow was started in another working directory.
    """
    for uid, sink in sinks.items():
        path = _path(sink)
        if path and _owner(sink) is None:
            paths.check_meant(
                f"sink {uid!r}",
                _given(sink),
                path,
                _meant(uid, sink, newest),
                is_written=_is_written(sink, Path(path)),
            )


def _owner(sink: Sink) -> dict[str, str] | None:
    if not isinstance(sink, FileSink) or "://" in sink.path:
        return None
    return owner_of(LocalStorage(Path(sink.path)))


def _path(sink: Sink) -> str:
    """Return the path in the file system that a sink writes to, if it has one."""
    match sink:
        case FileSink() | DeltaSink():
            return "" if "://" in sink.path else sink.path
        case SqlSink() if sink.address.dialect == "sqlite":
            return sink.address.database
        case _:
            return ""


def _is_written(sink: Sink, path: Path) -> bool:
    """Tell whether something wrote there; files of a sink are marked by their owner."""
    match sink:
        case FileSink():
            return False
        case DeltaSink():
            return (path / "_delta_log").is_dir()
        case _:
            return path.exists()


def _given(sink: Sink) -> str:
    match sink:
        case FileSink() | DeltaSink():
            return sink.given
        case SqlSink():
            return sink.address.given
        case _:
            return ""


def _meant(uid: str, sink: Sink, newest: Manifest) -> str:
    """Return the path that a sink had when the flow last ran, if it had one."""
    told = newest.meanings.get(uid) or newest.outputs.get(uid)
    place = "" if told is None else told.place
    if isinstance(sink, SqlSink):
        begin, end = "sqlite:///", f" {sink.table}"
        return place.removeprefix(begin).removesuffix(end)
    return place
