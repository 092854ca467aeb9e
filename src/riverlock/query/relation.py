"""Rows of a snapshot, read on demand, a slice of key groups at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidConfigError
from riverlock.query.keys.key_spans import place_of
from riverlock.query.retained import while_retained
from riverlock.query.rows import Rows
from riverlock.snapshot.format.parts import SHARED, group_span
from riverlock.snapshot.state_reader import read_entries
from riverlock.state.keys import group_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from riverlock.query.keys.key_spans import KeyPlace
    from riverlock.query.views import View
    from riverlock.snapshot.format.parts import IdSpan
    from riverlock.snapshot.format.records import Manifest
    from riverlock.storage.base import Storage

__all__ = ["Relation"]

# How much is held in memory at a time, more or less.
_ROWS_PER_SLICE = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Relation(Rows):
    """Rows of state, or of a part of it, at the end of an epoch.

    Only the files that can hold the rows are read.

    Attributes:
        storage: The store.
        manifest: The epoch.
        operator: Whose state it is.
        view: What of it is shown.
        place: For a relation that is narrowed to a key, where the key is.
        groups: The key groups that are read: first inclusive, last exclusive.
    """

    storage: Storage
    manifest: Manifest
    operator: str
    view: View
    place: KeyPlace | None = None
    groups: tuple[int, int] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return self.view.arrow

    def only(self, key: Any) -> Relation:
        """Return the rows of one key, as a relation.

        Args:
            key: A value; for several key columns a tuple, or a mapping from their
                names. For an operator over windows the end of the window may be left
                out.

        Raises:
            InvalidConfigError: It is not a key of this operator, or what is shown is
                not kept by key.
        """
        if self.view.scope != "key":
            raise InvalidConfigError(
                f"a key of state {self.view.name!r} of operator {self.operator!r}",
                expected="state that is kept by key",
                found=f"state of scope {self.view.scope}",
                hint="read all of it: it is small",
            )
        found = place_of(key, self.view.state, self.manifest.key_groups)
        return replace(self, place=found)

    def get(self, key: Any) -> list[dict[str, Any]]:
        """Return the rows of one key; read only what can hold it.

        Raises:
            InvalidConfigError: As ``only``.
            SnapshotNotFoundError: The epoch was deleted meanwhile.
            SnapshotCorruptedError: A file is missing or altered.
        """
        return list(self.only(key))

    def within(self, first: int, end: int) -> Relation:
        """Return the rows of some key groups, the end exclusive, as a relation."""
        return replace(self, groups=(first, end))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, some at a time.

        Raises:
            SnapshotNotFoundError: The epoch was deleted meanwhile.
            SnapshotCorruptedError: A file is missing or altered.
        """
        for span in self.spans():
            table = self._read(span)
            if table is not None and table.num_rows:
                yield from table.to_batches()

    def _read(self, span: IdSpan) -> pa.Table | None:
        state, now_us = self.view.state, self.manifest.now_us
        with while_retained(self.storage, self.manifest):
            entries = read_entries(self.storage, state, now_us=now_us, span=span)
        if entries is None:
            return None
        if self.place is not None:
            entries = self.place.of(entries)
        return self.view.rows(entries)

    def spans(self) -> list[IdSpan]:
        """Return the ids to read at a time."""
        if self.place is not None:
            return [self.place.span]
        if self.view.scope == "broadcast":
            return [SHARED]
        first, end = self.groups or (0, self.manifest.key_groups)
        rows = sum(f.rows for f in self.view.state.files)
        share = rows * (end - first) // self.manifest.key_groups
        pieces = max(1, min(end - first, -(-share // _ROWS_PER_SLICE)))
        ranges = (group_range(n, pieces, end - first) for n in range(pieces))
        return [group_span(first + a, first + b) for a, b in ranges]

    def to_spark(self, spark: Any) -> Any:
        """Return a Spark DataFrame, whose tasks read the rows by key groups."""
        if self.place is not None or self.groups is not None:
            return super().to_spark(spark)
        reader = spark.read.format("riverlock").option("operator", self.operator)
        if self.view.name is not None:
            reader = reader.option("state", self.view.name)
        epoch = str(self.manifest.epoch)
        return reader.option("at", epoch).load(self.storage.uri)

    def __repr__(self) -> str:
        """Say what is shown; nothing is read."""
        name = "" if self.view.name is None else f".{self.view.name}"
        return (
            f"<Relation {self.operator}{name} at epoch {self.manifest.epoch}: "
            f"{self.view.columns.ddl}>"
        )
