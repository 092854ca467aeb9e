"""Keys as people type them: ``ann``, ``7``, ``["ann", 7]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidConfigError
from riverlock.core.types import schema_of
from riverlock.query.keys.key_spans import optional_columns

if TYPE_CHECKING:
    from riverlock.core.types import Field
    from riverlock.snapshot.format.records import OperatorState

__all__ = ["typed_key"]


def typed_key(typed: str, state: OperatorState) -> tuple[Any, ...]:
    """Return the key that was typed, in the types of the key columns.

    A JSON array has one value per column; anything else is the value of the only
    column, as it stands. For windows, the first column may be left out.

    Args:
        typed: What the user typed.
        state: The operator.

    Raises:
        InvalidConfigError: It cannot be a key of these columns.
    """
    fields = schema_of(state.keys).fields
    fewest = len(fields) - optional_columns(state)
    values = _values(typed, (fewest, len(fields)), state.keys)
    named = fields[len(fields) - len(values) :]
    return tuple(
        _value(v, f, typed, state.keys) for v, f in zip(values, named, strict=True)
    )


def _values(typed: str, widths: tuple[int, int], keys: str) -> list[Any]:
    fewest, most = widths
    try:
        parsed = msgspec.json.decode(typed)
    except msgspec.MsgspecError:
        parsed = None
    if isinstance(parsed, list) and fewest <= len(parsed) <= most:
        return parsed
    if fewest == 1:
        return [typed]
    raise _bad(typed, keys, f"a JSON array of {most} values")


def _value(value: Any, field: Field, typed: str, keys: str) -> Any:
    import pyarrow as pa

    kind = field.type.to_arrow()
    try:
        if isinstance(value, str):
            return pa.scalar(value).cast(kind).as_py()
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _bad(typed, keys, f"{field.name} as {field.type.ddl}") from error


def _bad(typed: str, keys: str, expected: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"key {typed!r}",
        expected=f"{expected}, for the key columns ({keys})",
        found=typed,
    )
