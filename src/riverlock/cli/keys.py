"""Keys as people type them: ``ann``, ``7``, ``["ann", 7]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["of_key"]


def of_key(entries: pa.Table, keys: str, typed: str) -> pa.Table:
    """Return the entries of one key, compared in the types of the key columns.

    A JSON array gives one value per column; anything else is the value of the only
    column, as it stands.

    Args:
        entries: Entries of an operator (format §5).
        keys: DDL of the key columns, for messages.
        typed: What the user typed.

    Raises:
        InvalidConfigError: It cannot be a key of these columns.
    """
    import pyarrow.compute as pc

    column = entries["key"].combine_chunks()
    fields = list(column.type)
    values = _values(typed, len(fields), keys)
    keep = pc.is_valid(column)
    for at, (field, value) in enumerate(zip(fields, values, strict=True)):
        found = pc.struct_field(column, [at])
        keep = pc.and_(keep, _matches(found, field, value, typed, keys))
    return entries.filter(keep)


def _values(typed: str, width: int, keys: str) -> list[Any]:
    try:
        parsed = msgspec.json.decode(typed)
    except msgspec.MsgspecError:
        parsed = None
    if isinstance(parsed, list) and len(parsed) == width:
        return parsed
    if width == 1:
        return [typed]
    raise _bad(typed, keys, f"a JSON array of {width} values")


def _matches(found: Any, field: Any, value: Any, typed: str, keys: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if value is None:
        return pc.is_null(found)
    try:
        if isinstance(value, str) and not pa.types.is_nested(field.type):
            wanted = pa.scalar(value).cast(field.type)
        else:
            wanted = pa.scalar(value, field.type)
        if pa.types.is_nested(field.type):
            same = [v == wanted for v in found]
            return pa.array(same, pa.bool_())
        return pc.fill_null(pc.equal(found, wanted), False)  # noqa: FBT003 - Arrow's
    except (pa.ArrowException, TypeError, ValueError) as error:
        expected = f"{field.name} as {field.type}"
        raise _bad(typed, keys, expected) from error


def _bad(typed: str, keys: str, expected: str) -> InvalidConfigError:
    return InvalidConfigError(
        f"key {typed!r}",
        expected=f"{expected}, for the key columns ({keys})",
        found=typed,
    )
