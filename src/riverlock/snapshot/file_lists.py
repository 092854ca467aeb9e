"""State files that are too many for a manifest stand in lists beside it (format §4.6).

A region of thousands of tasks adds a file for each task in every epoch, and keeps those
of a dozen merges. A manifest that named them all again each time would grow with tasks
and merges alike. A list is written once, by the epoch that has its files first, and
every later manifest refers to it for as long as all of its files are in use.

In memory, an operator's state has all its files, and the lists that some of them stand
in. Only what is stored leaves those out. Files of the same epochs are in lists all of
them or not at all, so that the epochs of a list tell which files are its.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from riverlock.snapshot.flow_file import add_features
from riverlock.snapshot.format.records import LISTS_FEATURE, FileList, ListedFiles
from riverlock.snapshot.format.references import file_lists
from riverlock.snapshot.format.sealed import checksum, seal, unseal
from riverlock.snapshot.format.state_files import read_file
from riverlock.snapshot.format.store_layout import FLOW, RegionPaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, OperatorState, StateFile
    from riverlock.storage.base import Storage

__all__ = [
    "LONGEST",
    "MOST",
    "Lists",
    "as_stored",
    "in_order",
    "listed",
    "put_lists",
    "read_list",
    "unlisted",
    "whole",
]

# A manifest has so many files of the same epochs itself, and a list so many at most.
MOST = 256
LONGEST = 256

# Content of lists that are to be written before the manifest, by path.
Lists: TypeAlias = "dict[str, bytes]"
_Span: TypeAlias = tuple[int, int]


def in_order(files: Iterable[StateFile]) -> tuple[StateFile, ...]:
    """Oldest first; the path makes the order total, so that votes may come in any."""
    return tuple(sorted(files, key=lambda f: (f.first_epoch, f.first_group, f.path)))


def listed(
    manifest: Manifest, before: Manifest | None, *, attempt: str
) -> tuple[Manifest, Lists]:
    """Return a manifest that has lists where files are many, and the new ones.

    Args:
        manifest: With all its files; its lists are not looked at.
        before: The manifest whose lists exist and may be referred to again.
        attempt: What makes the names of new lists unique.
    """
    made: Lists = {}
    operators = dict(manifest.operators)
    for uid, state in manifest.operators.items():
        old = None if before is None else before.operators.get(uid)
        stem = RegionPaths(manifest.region).file_list(uid, manifest.epoch, attempt)
        lists = _lists(state, old, stem.removesuffix(".json"), made)
        if lists or state.lists:
            operators[uid] = msgspec.structs.replace(state, lists=lists)
    return msgspec.structs.replace(manifest, operators=operators), made


def _lists(
    state: OperatorState, before: OperatorState | None, stem: str, made: Lists
) -> tuple[FileList, ...]:
    if len(state.files) <= MOST:
        return ()
    found: list[FileList] = []
    known = _spans(before.files) if before is not None and before.lists else {}
    for span, files in _spans(state.files).items():
        if len(files) <= MOST:
            continue
        # The same objects, in the same order: comparing them costs next to nothing.
        if before is not None and known.get(span) == files:
            again = [e for e in before.lists if (e.first_epoch, e.last_epoch) == span]
            found += again
            if again:
                continue
        for at in range(0, len(files), LONGEST):
            path = f"{stem}-{len(made):04d}.json"
            part = tuple(files[at : at + LONGEST])
            made[path] = seal(ListedFiles(files=part))
            found.append(_reference(path, made[path], part))
    return tuple(found)


def _spans(files: Iterable[StateFile]) -> dict[_Span, list[StateFile]]:
    found: dict[_Span, list[StateFile]] = {}
    for file in files:
        found.setdefault((file.first_epoch, file.last_epoch), []).append(file)
    return found


def _reference(path: str, data: bytes, files: tuple[StateFile, ...]) -> FileList:
    return FileList(
        path=path,
        first_epoch=files[0].first_epoch,
        last_epoch=files[0].last_epoch,
        first_group=min(f.first_group for f in files),
        end_group=max(f.end_group for f in files),
        files=len(files),
        bytes=len(data),
        checksum=checksum(data),
        shared=any(f.shared for f in files),
    )


def put_lists(catalog: Catalog, lists: Mapping[str, bytes]) -> None:
    """Put what the next manifest refers to; from now on readers must know of lists."""
    if not lists:
        return
    if catalog.storage.exists(FLOW):  # a fork writes it when all else is there
        add_features(catalog.storage, catalog.flow(), (LISTS_FEATURE,))
    for path, data in lists.items():
        catalog.storage.put(path, data)


def unlisted(state: OperatorState) -> tuple[StateFile, ...]:
    """Return the files that stand in no list."""
    spans = {(each.first_epoch, each.last_epoch) for each in state.lists}
    if not spans:
        return state.files
    return tuple(f for f in state.files if (f.first_epoch, f.last_epoch) not in spans)


def as_stored(manifest: Manifest) -> Manifest:
    """Return a manifest without the files that stand in its lists."""
    return msgspec.structs.replace(
        manifest,
        operators={
            uid: msgspec.structs.replace(state, files=unlisted(state))
            if state.lists
            else state
            for uid, state in manifest.operators.items()
        },
    )


def whole(storage: Storage, stored: Manifest) -> Manifest:
    """Return a stored manifest with the files that stand in its lists.

    Raises:
        SnapshotCorruptedError: A list is missing or altered.
    """
    if not file_lists(stored):
        return stored
    operators = dict(stored.operators)
    for uid, state in stored.operators.items():
        more = [f for each in state.lists for f in read_list(storage, each)]
        if more:
            files = in_order((*state.files, *more))
            operators[uid] = msgspec.structs.replace(state, files=files)
    return msgspec.structs.replace(stored, operators=operators)


def read_list(storage: Storage, wanted: FileList) -> tuple[StateFile, ...]:
    """Return the files of a list, which this process may have read before.

    Raises:
        SnapshotCorruptedError: It is missing or altered.
    """
    key = (wanted.path, wanted.checksum)
    found = _remembered.get(key)
    if found is None:
        found = _remembered.keep(key, _read(storage, wanted))
    return found


def _read(storage: Storage, wanted: FileList) -> tuple[StateFile, ...]:
    size, expected = wanted.bytes, wanted.checksum
    data = read_file(storage, wanted.path, size=size, expected=expected)
    return unseal(data, ListedFiles, path=wanted.path).files


class Remembered:
    """The lists that were read last: a name and a checksum say all about a list."""

    def __init__(self, most: int) -> None:
        """Remember none."""
        self.most = most
        self._found: OrderedDict[tuple[str, str], tuple[StateFile, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, str]) -> tuple[StateFile, ...] | None:
        """Return a list; None: it has to be read."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def keep(
        self, key: tuple[str, str], files: tuple[StateFile, ...]
    ) -> tuple[StateFile, ...]:
        """Remember a list, and forget others if they are too many."""
        with self._lock:
            self._found[key] = files
            while len(self._found) > self.most:
                self._found.popitem(last=False)
        return files


# About 60 MB, for state in so many files that there are such lists.
_remembered = Remembered(512)
