"""The change feed: how state became what it is, epoch by epoch.

A step goes from one retained epoch to the next. Change files say which keys may differ;
where epochs between are gone, or state went back, all keys are compared. Either way a
row appears if and only if it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from riverlock.core.types import Field, Schema, Type
from riverlock.query.rows import Rows
from riverlock.query.steps import StateAt

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from riverlock.query.relation import Relation
    from riverlock.snapshot.format.parts import IdSpan
    from riverlock.snapshot.format.records import Manifest

__all__ = ["ChangeRows"]

UPSERT, DELETE = "upsert", "delete"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class ChangeRows(Rows):
    """What changed in a relation after one epoch, up to and including another.

    Columns: ``epoch``, ``change`` (``upsert`` or ``delete``), those that identify the
    row (key, index, map key), then ``before`` and ``after`` with the others; null where
    there was, or is, no such row. A timer exists or not: it has only the identifying
    columns.

    Attributes:
        relation: What is compared, as of the last epoch.
        manifests: The retained epochs, from the one before the first change on.
    """

    relation: Relation
    manifests: tuple[Manifest, ...]

    @cached_property
    def _named(self) -> int:
        """How many columns identify a row; the others are what changes."""
        view = self.relation.view
        whole = len(view.columns.fields)
        if view.name is None:
            return whole - len(view.variables)
        return whole - (1 if view.name in view.state.variables else 0)

    @cached_property
    def _state(self) -> tuple[str, ...]:
        return self.relation.columns[self._named :]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        fields = self.relation.view.columns.fields
        shown = [Field("epoch", Type("long")), Field("change", Type("string"))]
        shown += fields[: self._named]
        if self._state:
            state = Type("struct", fields=fields[self._named :])
            shown += [Field("before", state), Field("after", state)]
        return Schema(tuple(shown)).to_arrow()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the changes, some key groups at a time; those of a key in order."""
        import pyarrow as pa

        for span in self.relation.spans():
            rows = list(self._changes(span))
            if rows:
                pairs = zip(zip(*rows, strict=True), self.schema, strict=True)
                arrays = [pa.array(list(c), f.type) for c, f in pairs]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _changes(self, span: IdSpan) -> Iterator[Row]:
        before = StateAt.read(self.relation, self.manifests[0], span)
        for manifest in self.manifests[1:]:
            after, places = before.next(manifest)
            yield from self._compared(
                before.rows(places), after.rows(places), manifest.epoch
            )
            before = after

    def _compared(
        self, before: list[Row], after: list[Row], epoch: int
    ) -> Iterator[Row]:
        # By their texts, in which a NaN is equal to itself.
        old = {repr(row[: self._named]): row for row in before}
        new = {repr(row[: self._named]): row for row in after}
        for name, row in old.items():
            if name not in new:
                yield self._row(epoch, DELETE, row, (row, None))
        for name, row in new.items():
            was = old.get(name)
            if repr(was) != repr(row):
                yield self._row(epoch, UPSERT, row, (was, row))

    def _row(
        self, epoch: int, change: str, row: Row, states: tuple[Row | None, Row | None]
    ) -> Row:
        head = (epoch, change, *row[: self._named])
        if not self._state:
            return head
        return (*head, *(None if s is None else self._shown(s) for s in states))

    def _shown(self, row: Row) -> dict[str, Any]:
        return dict(zip(self._state, row[self._named :], strict=True))
