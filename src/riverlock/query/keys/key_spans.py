"""Where the entries of one key are: a span of ids, which few files can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidConfigError
from riverlock.core.times import micros
from riverlock.core.types import Schema, schema_of
from riverlock.snapshot.format.parts import IdSpan, group_span
from riverlock.state.keys import key_bytes, key_group, ordinal_bytes, with_group
from riverlock.state.layout import StateLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.snapshot.format.records import OperatorState

__all__ = ["KeyPlace", "has_panes", "optional_columns", "place_of"]


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where a key is.

    Attributes:
        span: The ids that its entries have.
        values: By key column, what distinguishes its entries from others in the span;
            empty if there are no others.
    """

    span: IdSpan
    values: Mapping[str, Any]

    def of(self, entries: pa.Table) -> pa.Table:
        """Return the entries of the key, of some whose ids are in the span."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.values:
            return entries
        column = entries["key"].combine_chunks()
        keep = pc.is_valid(column)
        for name, value in self.values.items():
            found = pc.struct_field(column, name)
            same = pc.is_null(found) if value is None else _equal(found, value)
            keep = pc.and_(keep, pc.coalesce(same, pa.scalar(value=False)))
        return entries.filter(keep)


def _equal(found: Any, value: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(value, float) and value != value:
        return pc.is_nan(found)
    return pc.equal(found, pa.scalar(value, found.type))


def has_panes(state: OperatorState) -> bool:
    """Whether the first key column is the end of a pane (format §4.1)."""
    return state.windows is not None and state.windows.startswith("size ")


def optional_columns(state: OperatorState) -> int:
    """Return how many key columns may be left out, counted from the first."""
    return 1 if has_panes(state) and len(schema_of(state.keys).fields) > 1 else 0


def place_of(key: Any, state: OperatorState, key_groups: int) -> KeyPlace:
    """Return where a key is.

    Args:
        key: A value; for several key columns a tuple, or a mapping from their names.
            For an operator over windows the end of the window may be left out.
        state: The operator.
        key_groups: How many there are.

    Raises:
        InvalidConfigError: It is not a key of this operator.
    """
    schema = schema_of(state.keys)
    values = _values(key, schema, optional_columns(state))
    is_partial = len(values) < len(schema.fields)
    named = Schema(schema.fields[len(schema.fields) - len(values) :])
    try:
        stored = StateLayout(named, {}).key_of(values)
    except (TypeError, ValueError) as error:
        raise _refused(key, schema.ddl, str(error)) from error
    if not has_panes(state):
        return KeyPlace(_prefixed(_id(stored, named, b"", key_groups)), {})
    if is_partial:
        group = key_group(stored, named, key_groups)
        found = dict(zip(named.names, stored, strict=True))
        return KeyPlace(group_span(group, group + 1), found)
    rest, end = Schema(named.fields[1:]), ordinal_bytes(micros(stored[0]))
    return KeyPlace(_prefixed(_id(stored[1:], rest, end, key_groups)), {})


def _id(values: Sequence[Any], schema: Schema, front: bytes, key_groups: int) -> bytes:
    group = key_group(values, schema, key_groups)
    return with_group(group, front + (key_bytes(values) if values else b""))


def _prefixed(prefix: bytes) -> IdSpan:
    """Return the ids with this prefix: a key's bytes show where they end."""
    number = int.from_bytes(prefix, "big") + 1
    return IdSpan(prefix, number.to_bytes(len(prefix), "big"))


def _values(key: Any, schema: Schema, optional: int) -> tuple[Any, ...]:
    names = schema.names
    if isinstance(key, Mapping):
        given = tuple(key)
        for wanted in (names, names[optional:]):
            if set(given) == set(wanted):
                return tuple(key[n] for n in wanted)
        raise _refused(key, schema.ddl, f"the columns {', '.join(map(str, given))}")
    values = tuple(key) if isinstance(key, tuple | list) else (key,)
    if len(names) - optional <= len(values) <= len(names):
        return values
    raise _refused(key, schema.ddl, f"{len(values)} values")


def _refused(key: Any, ddl: str, found: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"key {key!r}",
        expected=f"one value for each key column ({ddl})",
        found=found,
        hint="give a value, a tuple of values, or a mapping from column to value",
    )
