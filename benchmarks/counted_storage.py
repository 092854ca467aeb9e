"""A store in memory that counts what is asked of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from riverlock.storage.memory import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.storage.base import Entry


class CountedStorage(MemoryStorage):
    """Counts requests by kind, and the bytes that they move."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        # Paths by folder, since stores of large flows have very many.
        self._folders: dict[str, set[str]] = defaultdict(set)

    def place(self, path: str) -> None:
        """Have an empty file that somebody else has put; it is not counted."""
        super().put(path, b"")
        self._remember(path)

    def _remember(self, path: str) -> None:
        for depth in (1, 3):
            self._folders["/".join(path.split("/")[:depth])].add(path)

    def take(self) -> Counter[str]:
        """Return what was counted since this was last asked."""
        found, self.counts = self.counts, Counter()
        return found

    def _note(self, what: str, size: int = 0) -> None:
        self.counts[what] += 1
        self.counts[f"{what} bytes"] += size

    def get(self, path: str) -> bytes:
        try:
            data = super().get(path)
        except Exception:
            self._note("gets")  # one that finds nothing is a request too
            raise
        self._note("gets", len(data))
        return data

    def head(self, path: str) -> Entry | None:
        self._note("gets")
        return super().head(path)

    def exists(self, path: str) -> bool:
        self._note("gets")
        return super().exists(path)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        near = self._folders.get(prefix.rstrip("/"))
        if near is None:
            found = list(super().list(prefix))
        else:
            entries = map(super().head, sorted(near))
            found = [entry for entry in entries if entry is not None]
        # Stores list a thousand names for each request.
        self.counts["listings"] += max(1, -(-len(found) // 1_000))
        return iter(found)

    def put(self, path: str, data: bytes) -> None:
        self._note("puts", len(data))
        self._remember(path)
        super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._note("puts", len(data))
        self._remember(path)
        return super().put_if_absent(path, data)

    def delete(self, path: str) -> None:
        super().delete(path)
        for depth in (1, 3):
            self._folders["/".join(path.split("/")[:depth])].discard(path)
