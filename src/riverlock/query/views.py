"""What of an operator's entries a relation shows: columns with their types."""

from __future__ import annotations

import difflib
from functools import cached_property
from typing import TYPE_CHECKING

from riverlock.core.errors import SnapshotNotFoundError
from riverlock.core.types import Field, Schema, Type, schema_of, type_of
from riverlock.query.keys.key_spans import has_panes
from riverlock.query.nesting import nested
from riverlock.snapshot.state_reader import read_variable
from riverlock.state.layout import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.snapshot.format.records import OperatorState, Variable

__all__ = ["TIMERS", "View", "checked_state"]

TIMERS = "timers"
# Names a key too long for its id; the key itself is in the key columns (format §5.1).
_LONG_KEY = "long_key"


def checked_state(state: OperatorState, name: str, *, uid: str, store: str) -> str:
    """Return the name of a state variable, or ``timers``.

    Raises:
        SnapshotNotFoundError: The operator has no such state.
    """
    known = [*state.variables, TIMERS]
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    raise SnapshotNotFoundError.among(
        f"state {name!r} of operator {uid!r}{meant}",
        store=store,
        kind="state",
        names=known,
    )


class View:
    """One operator with a row per key, or one of its variables with a row per entry.

    A variable gives the key columns, then ``index`` and ``value`` of a list, ``key``
    and ``value`` of a map, ``kind`` and ``at`` of timers, or the value under its own
    name. The operator gives a column for each variable that is kept by key: lists and
    maps are nested.
    """

    def __init__(self, state: OperatorState, name: str | None) -> None:
        """Show a variable, ``timers``, or with None the operator."""
        self.state, self.name = state, name

    @cached_property
    def scope(self) -> str:
        """Who shares what is shown: a key, a key group, or everybody (broadcast)."""
        if self.name is None or self.name == TIMERS:
            return "key"
        return self.state.variables[self.name].scope

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """The variables that the operator's own view shows."""
        hidden = {_LONG_KEY} if has_panes(self.state) else set()
        return {
            name: variable
            for name, variable in self.state.variables.items()
            if variable.scope == "key" and name not in hidden
        }

    @cached_property
    def columns(self) -> Schema:
        """The columns that the rows have."""
        shown = self._shown()
        taken = {f.name for f in shown}
        keys = tuple(
            Field(f"key.{f.name}" if f.name in taken else f.name, f.type)
            for f in self._keys()
        )
        return Schema((*keys, *shown))

    def _keys(self) -> tuple[Field, ...]:
        if self.scope == "group":
            return (Field("key_group", Type("int")),)
        return schema_of(self.state.keys).fields if self.scope == "key" else ()

    def _shown(self) -> tuple[Field, ...]:
        if self.name is None:
            pairs = self.variables.items()
            return tuple(Field(name, _nested_type(v)) for name, v in pairs)
        if self.name == TIMERS:
            return (Field("kind", Type("string")), Field("at", Type("timestamp")))
        variable = self.state.variables[self.name]
        value = type_of(variable.type)
        if variable.kind == "list":
            return (Field("index", Type("long")), Field("value", value))
        if variable.kind == "map":
            return (Field("key", type_of(variable.key)), Field("value", value))
        return (Field(self.name, value),)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns that the rows have, in Arrow."""
        return self.columns.to_arrow()

    def rows(self, entries: pa.Table) -> pa.Table:
        """Return what is shown of some entries, sorted as they are."""
        entries = self.conformed(entries)
        if self.name is None:
            table = nested(entries, self.variables)
        else:
            table = read_variable(entries, self.state, self.name)
        return table.rename_columns(self.columns.names).cast(self.arrow)

    def conformed(self, entries: pa.Table | None) -> pa.Table:
        """Return entries with a column for each variable of the epoch.

        Files that are older than a variable lack it.
        """
        import pyarrow as pa

        whole = arrow_schema(schema_of(self.state.keys), self.state.variables)
        parts = [whole.empty_table(), *([] if entries is None else [entries])]
        return pa.concat_tables(parts, promote_options="permissive")


def _nested_type(variable: Variable) -> Type:
    value = type_of(variable.type)
    if variable.kind == "list":
        return Type("array", element=value)
    if variable.kind == "map":
        return Type("map", key=type_of(variable.key), element=value)
    return value
