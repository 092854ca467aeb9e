"""Rewrites the state of an operator whose variables have new names or new values.

Also that of one with a new variable under a name that a dropped one had.

Everything is read, changed and written once, into files that nothing refers to until
the first epoch of the new code is decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from riverlock.core.errors import StateTypeError
from riverlock.operators.boundary import user_error
from riverlock.snapshot.retention.compaction import Compaction, merged, write_pieces
from riverlock.state.codec import codec_of
from riverlock.state.keys import (
    group_id,
    key_bytes,
    list_slot,
    map_slot,
    value_slot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from riverlock.snapshot.format.records import OperatorState
    from riverlock.snapshot.format.store_layout import RegionPaths
    from riverlock.state.layout import StateLayout
    from riverlock.state.spec import StateSpec
    from riverlock.storage.base import Storage

__all__ = ["Migration"]

_SLOTS = {"list": list_slot, "map": map_slot}


class Migration:
    """The rewriting of one operator."""

    def __init__(
        self, operator: str, layout: StateLayout, moves: Mapping[str, StateSpec]
    ) -> None:
        """Take what is declared, and which stored variable becomes which."""
        self._operator, self._layout, self._moves = operator, layout, moves

    def rewrite(  # noqa: PLR0913 - where, what, when, how split, under which name
        self,
        storage: Storage,
        paths: RegionPaths,
        state: OperatorState,
        *,
        epoch: int,
        now_us: int,
        pieces: Sequence[tuple[int, int]],
        attempt: str,
    ) -> OperatorState:
        """Write the state as it is declared now; return what refers to it.

        Args:
            storage: The store.
            paths: Where the region's files are.
            state: What is stored, at the end of an epoch.
            epoch: That epoch.
            now_us: Its processing time.
            pieces: Ranges of key groups that cover all of them.
            attempt: What makes the names of the files unique.

        Raises:
            UserCodeError: A migration function raised.
            StateTypeError: It gave what the declared type cannot hold.
            SnapshotCorruptedError: A file is missing or altered.
        """
        if not state.files:
            return self._record(state, epoch)
        plan = Compaction(
            operator=self._operator, files=state.files, drops_tombstones=True
        )
        entries = merged(storage, plan, now_us=now_us)
        table = self.table(entries, self._sources(state))
        # Named after the coming epoch, so that no sweep takes them before it.
        name = paths.state_file(self._operator, epoch + 1, attempt)
        made = write_pieces(storage, plan, table, pieces, name.removesuffix(".parquet"))
        # Lists, if any, have the files of before.
        return msgspec.structs.replace(self._record(state, epoch), files=made, lists=())

    def _record(self, state: OperatorState, epoch: int) -> OperatorState:
        return msgspec.structs.replace(
            state, variables=self._layout.variables, since=epoch
        )

    def _sources(self, state: OperatorState) -> dict[str, str]:
        """Return which stored variable each declared one comes from.

        Files may have more than the state declares: what was dropped stays behind.
        """
        kept = {name: name for name in self._layout.specs if name in state.variables}
        return kept | {spec.name: name for name, spec in self._moves.items()}

    def table(self, table: pa.Table, sources: Mapping[str, str]) -> pa.Table:
        """Return entries as they are declared now, sorted by id."""
        schema = self._layout.arrow
        known = {None, *sources.values()}
        named = pa.array([v in known for v in table["variable"].to_pylist()])
        table = table.filter(named).combine_chunks()
        table = self._renamed(table)
        columns = [
            self._data(table, schema.field("data").type, sources)
            if name == "data"
            else table[name].cast(schema.field(name).type)
            for name in schema.names
        ]
        return pa.table(columns, schema=schema).sort_by("id")

    def _renamed(self, table: pa.Table) -> pa.Table:
        """Rename the variable in entries that carry its name."""
        ids, names = table["id"].to_pylist(), table["variable"].to_pylist()
        for at, name in enumerate(names):
            spec = self._moves.get(name)
            if spec is not None and spec.name != name:
                slot = _SLOTS.get(spec.kind, value_slot)
                begin = self._key_length(table["key"][at].as_py())
                end = begin + len(slot(name))
                assert ids[at][begin:end] == slot(name)
                ids[at] = ids[at][:begin] + slot(spec.name) + ids[at][end:]
                names[at] = spec.name
        ids_column = pa.array(ids, pa.binary())
        table = table.set_column(table.schema.get_field_index("id"), "id", ids_column)
        place = table.schema.get_field_index("variable")
        return table.set_column(place, "variable", pa.array(names, pa.string()))

    def _key_length(self, key: dict[str, Any] | None) -> int:
        """Return how long the part of an id is that names group and key."""
        if key is None:
            return len(group_id(0))
        values = self._layout.key_of(key[n] for n in self._layout.keys.names)
        return 2 + len(key_bytes(values))

    def _data(
        self, table: pa.Table, kind: pa.StructType, sources: Mapping[str, str]
    ) -> pa.Array:
        stored = (
            table["data"].combine_chunks() if "data" in table.column_names else None
        )
        arrays = [self._column(table, stored, f, sources.get(f.name)) for f in kind]
        mask = pa.array([False] * table.num_rows)
        if stored is not None:
            mask = pc.is_null(stored)
            mask = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)

    def _column(
        self, table: pa.Table, stored: Any, wanted: pa.Field, source: str | None
    ) -> pa.Array:
        is_there = stored is not None and source is not None
        if not is_there or stored.type.get_field_index(source) < 0:
            return pa.nulls(table.num_rows, wanted.type)
        assert source is not None
        column = pc.struct_field(stored, source)
        spec = self._moves.get(source)
        if spec is None or spec.migrate is None:
            return column.cast(wanted.type)
        migrate = self._migrating(spec, table)
        return pa.array(
            [migrate(at, value) for at, value in enumerate(column.to_pylist())],
            wanted.type,
        )

    def _migrating(self, spec: StateSpec, table: pa.Table) -> Callable[[int, Any], Any]:
        """Return what turns a stored value into a new one, in Arrow's terms."""
        codec, function = codec_of(spec.type), spec.migrate
        assert function is not None
        keys = table["key"]

        def one(at: int, value: Any) -> Any:
            if value is None:
                return None
            key = keys[at].as_py()
            try:
                found = function(value)
            except Exception as error:
                raise user_error(
                    error,
                    operator=self._operator,
                    where=f"migrate of {spec.name}",
                    key=key,
                    record=value,
                ) from error
            try:
                fixed = codec.checked(found)
            except (TypeError, ValueError, ArithmeticError) as error:
                raise StateTypeError(
                    operator=self._operator,
                    variable=spec.name,
                    key=key,
                    expected=f"{spec.type.ddl} ({error})",
                    found=found,
                ) from error
            return (
                codec.to_arrow(fixed) if codec.to_arrow and fixed is not None else fixed
            )

        if spec.kind in ("list", "map"):
            return lambda at, pair: (
                None if pair is None else {**pair, "value": one(at, pair["value"])}
            )
        return one
