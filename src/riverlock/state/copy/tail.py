"""The youngest committed epochs of a working copy, kept beside its LMDB file.

Writing to LMDB copies a page per touched key, and with many keys stored that is most of
an epoch's cost. So rows of values wait here first: in memory, and on disk as files that
each lead from one epoch to a later one. When they have become many, they go to LMDB in
one sorted pass, in which keys share pages and a key that changed often is written once.

Worker processes share the files, and each reads those it has not in memory yet. What
needs LMDB's order (list and map entries, timers, expiry) does not wait.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.state.columns.key_columns import sorted_places
from riverlock.state.copy.layers import DELETED, Layer, Layers
from riverlock.state.copy.memories import Memories
from riverlock.state.copy.redo import Redo, read_redo, write_redo
from riverlock.state.store import Changes, Rows, StateReader, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Tail", "TailReader", "tail_at"]

# More than these is flushed; up to twice as many rows, since the same keys may be in
# several layers. A file costs a restarted worker a few milliseconds.
_MAX_ROWS = 100_000
# Ordered rows are deleted soon, most of them before they were in LMDB at all.
_MAX_ORDERED = 400_000
_MAX_FILES = 64
_MAX_BYTES = 64 << 20
# Less than any ordinal.
_LEAST = -(1 << 63)
# A worker may come to see every range of every operator: it keeps these in memory.
_MAX_TAILS = 8


class Tail:
    """Changes since the version of an LMDB file."""

    def __init__(self, folder: Path) -> None:
        """Name the folder of its files; nothing is read yet."""
        self._folder = folder
        self.layers = Layers()
        self.memories = Memories()
        self._start: Version | None = None
        # What the files in memory lead to.
        self._end: Version | None = None
        self._files = self._bytes = 0
        # All that LMDB has of ordinals until this one is deleted here.
        self.gone_until: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether it is time to write everything to LMDB."""
        if self._files >= _MAX_FILES or self._bytes >= _MAX_BYTES:
            return True
        # Half of them may be hidden: merge before counting, not in every epoch.
        limit = _MAX_ROWS if self.layers.floor is None else _MAX_ORDERED
        return self.layers.size >= 2 * limit and len(self.layers.merged().ids) >= limit

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self.layers.size

    def follow(
        self, start: Version, until: int, token_of: Callable[[int], str | None]
    ) -> Version:
        """Come as far as files lead from an LMDB file's version; return how far.

        Args:
            start: The version of the LMDB file.
            until: The committed epoch to reach at most.
            token_of: The run that decided an epoch: files of other timelines are not
                followed.
        """
        if start.token != token_of(start.epoch):
            return start  # a file of another timeline: nothing leads on from there
        if self._start != start or not self._is_of(until, token_of):
            self.forget()
            self._start = self._end = start
        assert self._end
        links = self._links(until, token_of)
        while link := links.get(self._end.epoch):
            redo = read_redo(link.path, start.schema)
            if redo is None:
                break
            version = Version(link.last, link.token, start.schema)
            self._take(redo, version, link.path)
        return self._end

    def _is_of(self, until: int, token_of: Callable[[int], str | None]) -> bool:
        """Whether what is in memory is a part of the timeline."""
        end = self._end
        return end is not None and (
            end.epoch <= until and token_of(end.epoch) == end.token
        )

    def add(self, redo: Redo, version: Version, file: Path | None) -> None:
        """Take the changes that lead to a version.

        Args:
            redo: What the epoch changed.
            version: Where it leads.
            file: The file it came from, which becomes ours.
        """
        assert self._end
        name = f"{self._end.epoch:012d}-{version.epoch:012d}-{version.token}.tail"
        path = self._folder / name
        moved = False
        if file is not None:
            with suppress(OSError):
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                file.replace(path)
                moved = True
        if not moved:
            write_redo(path, redo, version.schema)
        self._take(redo, version, path)

    def changes(self) -> Changes:
        """Return everything that waits as one change set."""
        return Redo(self.layers.merged(), [], []).changes()

    def with_all(self, redo: Redo) -> Changes:
        """Return everything that waits, and then some changes, as one change set."""
        if self.is_empty:
            return redo.changes()
        whole = {**self.layers.as_dict(), **redo.rows()}
        entries = list(whole), list(whole.values())
        return Redo(entries, redo.timers, redo.expiries).changes()

    def settle(self, reader: StateReader) -> None:
        """Take note of the ordinals that LMDB has: rows of greater ones are here only.

        Those are not written to LMDB, to be deleted there, if they come and go while
        they wait.
        """
        if self.layers.floor is None:
            last = reader.last_ordinal()
            self.layers.floor = _LEAST if last is None else last

    def forget(self) -> None:
        """Drop what is in memory."""
        self.layers = Layers()
        self.gone_until = None
        self._start = self._end = None
        self._files = self._bytes = 0

    def clear(self) -> None:
        """Drop the files too: LMDB has everything, or is to be built anew."""
        self.forget()
        with suppress(OSError):
            for path in self._folder.iterdir():
                path.unlink(missing_ok=True)

    def _take(self, redo: Redo, version: Version, path: Path) -> None:
        self.layers.push(redo.layer)
        assert self._end
        self.memories.follow(redo.layer, self._end, version)
        self._end = version
        self._files += 1
        with suppress(OSError):
            self._bytes += path.stat().st_size

    def _links(
        self, until: int, token_of: Callable[[int], str | None]
    ) -> dict[int, _Link]:
        """Return the files of the timeline by the epoch they lead from."""
        found: dict[int, _Link] = {}
        with suppress(OSError):
            for path in self._folder.iterdir():
                first, _, rest = path.stem.partition("-")
                last, _, token = rest.partition("-")
                is_whole = path.suffix == ".tail" and int(last) <= until
                if is_whole and token_of(int(last)) == token:
                    found[int(first)] = _Link(int(last), token, path)
        return found


@dataclass(frozen=True)
class _Link:
    """A file that leads to an epoch."""

    last: int
    token: str
    path: Path


class TailReader:
    """A view of an LMDB file with a tail over it."""

    def __init__(self, reader: StateReader, tail: Tail) -> None:
        """Read ``tail`` first; it does not change while a task runs."""
        self._reader, self._layers, self._tail = reader, tail.layers, tail
        self.last, self.due_timers = reader.last, reader.due_timers
        self.first_timer = reader.first_timer

    def get(self, entry_id: bytes) -> bytes | None:
        """Return the payload of an entry."""
        known = self._layers.get(entry_id)
        if known is None:
            return self._reader.get(entry_id)
        return None if known == DELETED else known

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        """Return the payloads of entries, None for those that do not exist."""
        found = self._layers.get_many(ids)
        if None in found:
            places = [n for n, payload in enumerate(found) if payload is None]
            older = self._reader.get_many([ids[n] for n in places])
            for n, payload in zip(places, older, strict=True):
                found[n] = payload
        if DELETED in found:
            found = [None if payload == DELETED else payload for payload in found]
        return found

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries whose id begins with ``prefix``, in order."""
        if prefix:
            # What belongs to a key beside its row; nothing of that kind waits.
            yield from self._reader.scan(prefix)
            return
        rows = self._layers.as_dict()
        mine = sorted((i, row) for i, row in rows.items() if row != DELETED)
        older = (pair for pair in self._reader.scan(prefix) if pair[0] not in rows)
        yield from merge(mine, older)

    def span(self, after: int | None, until: int) -> Rows:
        """Return ordered entries of a span of ordinals, in the order of ids."""
        tail = self._tail
        tail.settle(self._reader)
        mine = self._layers.between(after, until)
        # What is gone from LMDB for good is not read again.
        bounds = [t for t in (after, tail.gone_until) if t is not None]
        since = max(bounds, default=None)
        if since is None or since < until:
            below = Layer(*self._reader.span(since, until))
            seen = mine.first_seen(below)
            if seen is not None:
                mine.under(below)
            if after is None:
                tail.gone_until = until if seen is None else seen - 1
        whole = mine.merged()
        live = whole.where(~whole.are_gone)
        # In order: results must not depend on what lies where.
        order = pa.array(sorted_places(live.ids))
        return live.ids.take(order), live.rows.take(order)

    def get_ordered(self, ids: pa.BinaryArray) -> pa.BinaryArray:
        """Return the payloads of ordered entries, null for those that do not exist."""
        found = self._layers.find_ordered(ids)
        unknown = found.is_null()
        if found.null_count:
            older = self._reader.get_ordered(ids.filter(unknown))
            found = pc.replace_with_mask(found, unknown, older)
        return pc.if_else(pc.equal(pc.binary_length(found), 0), None, found)

    def first_ordinal(self, after: int) -> int | None:
        """Return the least ordinal that is greater; its entries may be gone since."""
        layers, reader = self._layers, self._reader
        found = layers.first_ordinal(after), reader.first_ordinal(after)
        return min((each for each in found if each is not None), default=None)

    def last_ordinal(self) -> int | None:
        """Return the greatest ordinal; its entries may be gone since."""
        found = self._layers.last_ordinal(), self._reader.last_ordinal()
        return max((each for each in found if each is not None), default=None)


# The tails of this process, most recently used last.
_TAILS: dict[Path, Tail] = {}


def tail_at(folder: Path) -> Tail:
    """Return the tail of a folder, with what this process knows of it already."""
    tail = _TAILS.pop(folder, None) or Tail(folder)
    _TAILS[folder] = tail
    # Other regions may be threads of this process: a copy of the keys, and no error if
    # one is gone.
    for oldest in list(_TAILS)[:-_MAX_TAILS]:
        _TAILS.pop(oldest, None)
    return tail
