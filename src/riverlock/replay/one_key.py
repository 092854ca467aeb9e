"""One key out of many: what a replay shows an operator when only that key is asked for.

Every other key is as if nothing had come for it, and no timer of it were due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from riverlock.core.errors import InvalidConfigError
from riverlock.core.hidden_columns import GROUP
from riverlock.operators.task_input import key_values
from riverlock.state.keys import key_bytes, key_group, with_group
from riverlock.state.layout import StateLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from riverlock.core.types import Schema, Type
    from riverlock.state.store import Rows, StateReader

__all__ = ["OneKey"]


@dataclass(frozen=True, kw_only=True)
class OneKey:
    """A key of an operator, as it is stored.

    Attributes:
        keys: The key columns.
        values: A value for each.
        group: The key group it is in.
    """

    keys: Schema
    values: tuple[Any, ...]
    group: int

    @classmethod
    def of(cls, keys: Schema, values: Sequence[Any], key_groups: int) -> OneKey:
        """Return the key of some values; text is read as the type of its column.

        Raises:
            InvalidConfigError: They do not fit the columns.
        """
        try:
            read = [_read(v, f.type) for v, f in zip(values, keys.fields, strict=True)]
            found = StateLayout(keys, {}).key_of(read)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise InvalidConfigError(
                f"key {list(values)!r}",
                expected=f"one value for each of {keys.ddl}",
                found=str(error),
            ) from error
        return cls(keys=keys, values=found, group=key_group(found, keys, key_groups))

    @property
    def id(self) -> bytes:
        """The beginning of the ids of all its entries (format §5.1)."""
        return with_group(self.group, key_bytes(self.values))

    def rows(self, table: pa.Table) -> pa.Table:
        """Return the rows of the key, and those that have none: broadcast ones."""
        group = table[GROUP]
        near = pc.or_kleene(pc.is_null(group), pc.equal(group, self.group))
        table = table.filter(near)
        columns = key_values(table.select(list(self.keys.names)), self.keys)
        layout = StateLayout(self.keys, {})
        mine = [layout.key_of(k) == self.values for k in zip(*columns, strict=True)]
        is_mine = pa.array(mine, pa.bool_())
        return table.filter(pc.or_(is_mine, pc.is_null(table[GROUP])))

    def number_in(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Return how many records of the key there are among the rows of a task."""
        found = [b for b in batches if b.num_rows]
        if not found:
            return 0
        group = self.rows(pa.Table.from_batches(found))[GROUP]
        return len(group) - int(group.null_count)

    def entries(self, table: pa.Table) -> pa.Table:
        """Return the entries of the key in a state file."""
        return table.filter(pc.starts_with(table["id"], self.id))

    def reader(self, reader: StateReader) -> StateReader:
        """Return a view in which no other key has timers or is visited unasked."""
        return _OneKeyReader(reader, self.id)


def _read(value: Any, kind: Type) -> Any:
    if not isinstance(value, str) or kind.kind == "string":
        return value
    return pa.scalar(value).cast(kind.to_arrow()).as_py()


class _OneKeyReader:
    def __init__(self, reader: StateReader, key_id: bytes) -> None:
        self._reader, self._id = reader, key_id

    def get(self, entry_id: bytes) -> bytes | None:
        return self._reader.get(entry_id)

    def get_many(self, ids: Sequence[bytes]) -> list[bytes | None]:
        return self._reader.get_many(ids)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        found = self._reader.scan(prefix)
        return ((i, p) for i, p in found if prefix or i.startswith(self._id))

    def span(self, after: int | None, until: int) -> Rows:
        return self._reader.span(after, until)

    def get_ordered(self, ids: pa.BinaryArray) -> pa.BinaryArray:
        return self._reader.get_ordered(ids)

    def last_ordinal(self) -> int | None:
        return self._reader.last_ordinal()

    def first_ordinal(self, after: int) -> int | None:
        return self._reader.first_ordinal(after)

    def last(self, prefix: bytes) -> bytes | None:
        return self._reader.last(prefix)

    def due_timers(
        self, kind: int, until_us: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        found = self._reader.due_timers(kind, until_us)
        return (timer for timer in found if timer[1] == self._id)

    def first_timer(self, kind: int) -> int | None:
        return next((t for t, _, _ in self.due_timers(kind, 1 << 62)), None)
