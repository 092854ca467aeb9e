"""Splits rows by the values of columns, into folders named as Hive and Spark do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from riverlock.core.errors import InvalidFlowError, SinkError
from riverlock.core.values.arrow_values import python_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from riverlock.connectors.base.sink import SinkUse

__all__ = ["Values", "check_columns", "check_names", "folder_of", "partitions"]

Values: TypeAlias = tuple[tuple[str, str | None], ...]  # column, value as text

_MAX_NAME = 255
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark call a null


def partitions(table: pa.Table, by: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """Split rows by columns, which the parts then lack, in a fixed order.

    Values are compared as text: null and the empty string are one part, as in Hive and
    Delta, and no NaN equals another.
    """
    if not by:
        yield (), table
        return
    import numpy as np
    import pyarrow as pa

    columns = [[(name, _text(v)) for v in python_values(table[name])] for name in by]
    places: dict[Values, list[int]] = {}
    for place, values in enumerate(zip(*columns, strict=True)):
        places.setdefault(values, []).append(place)
    rest = table.drop_columns(list(by))
    for values in sorted(places, key=folder_of):
        yield values, rest.take(pa.array(np.array(places[values])))


def check_columns(use: SinkUse, by: Sequence[str]) -> None:
    """Check that rows can be split by columns.

    Raises:
        InvalidFlowError: There is no such column.
    """
    for column in by:
        if column not in use.schema.names:
            raise InvalidFlowError(
                f"partition_by of sink {use.uid!r}",
                expected=f"one of {', '.join(use.schema.names)}",
                found=repr(column),
            )


def folder_of(values: Values) -> str:
    """Return the folder of a part, with a trailing slash; empty if there is none."""
    return "".join(
        f"{_escaped(n)}={_NULL_PARTITION if v is None else _escaped(v)}/"
        for n, v in values
    )


def check_names(sink: str, folder: str) -> None:
    """Refuse now what no file system could take once the epoch is decided.

    Raises:
        SinkError: A name is too long.
    """
    for name in folder.split("/"):
        if len(name.encode()) > _MAX_NAME:
            raise SinkError(
                sink,
                epoch=None,
                what=f"a folder name may have {_MAX_NAME} bytes, {name[:60]}... has"
                f" {len(name.encode())}; partition by something shorter",
            )


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> str:
    """Escape as Hive and Spark do: a few ASCII characters, nothing beyond."""
    return "".join(
        f"%{ord(c):02X}" if c in _ESCAPED or ord(c) < 32 or ord(c) == 127 else c
        for c in text
    )
