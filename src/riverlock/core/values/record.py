"""Rows as Python objects: ``order.amount`` or ``order["amount"]``.

One class per schema, made with msgspec: a record costs about 70 ns, a fifth of a named
tuple. Timestamps are kept as microseconds and become ``datetime`` only when read,
which costs more than all the rest of a record. So a time that Python cannot name harms
only code that reads it.
"""

from __future__ import annotations

import keyword
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from riverlock.core.errors import TimeRangeError
from riverlock.core.suggestions import did_you_mean
from riverlock.core.times import from_micros, from_naive_micros, micros
from riverlock.core.values.arrow_values import FarTime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from riverlock.core.types import Schema

__all__ = [
    "NoColumnError",
    "Record",
    "column_attributes",
    "no_column",
    "record_class",
    "record_maker",
]

_TIMES = {"timestamp": from_micros, "timestamp_ntz": from_naive_micros}


class NoColumnError(KeyError):
    """A record was asked for a column that it does not have."""

    def __str__(self) -> str:
        """Return the sentence; that of ``KeyError`` would be in quotes."""
        return str(self.args[0])


class Record(msgspec.Struct, gc=False):
    """A row; columns are attributes, and items for names that are not identifiers."""

    # Of which input of a two-input operator it is.
    _rl_is_right: ClassVar[bool] = False

    def __getitem__(self, name: str) -> Any:
        """Return a column by name."""
        try:
            return getattr(self, _ATTRIBUTES[type(self)][name])
        except KeyError:
            raise NoColumnError(no_column(self, name)) from None

    def __iter__(self) -> Iterator[Any]:
        """Yield the values in column order."""
        return (getattr(self, a) for a in _ATTRIBUTES[type(self)].values())

    def as_dict(self) -> dict[str, Any]:
        """Return the row as a dictionary."""
        return {n: getattr(self, a) for n, a in _ATTRIBUTES[type(self)].items()}

    def __repr__(self) -> str:
        """Show the columns by name."""
        named = _ATTRIBUTES[type(self)].items()
        inner = ", ".join(f"{n}={_shown(self, a)}" for n, a in named)
        return f"Record({inner})"


def no_column(record: Record, name: str) -> str:
    """Return a sentence about a column that a record does not have."""
    known = list(_ATTRIBUTES[type(record)])
    near = did_you_mean(name, known)
    told = f"the record has no column {name!r}, only {', '.join(known)}"
    return f"{told} ({near})" if near else told


# Column name -> attribute, per generated class: a Struct cannot carry it itself.
_ATTRIBUTES: dict[type, dict[str, str]] = {}


def _attribute(name: str, position: int) -> str:
    # A name that begins with two underscores would be another one inside a class.
    is_plain = name.isidentifier() and not name.startswith("__")
    free = is_plain and not keyword.iskeyword(name)
    return f"c{position}_" if not free or hasattr(Record, name) else name


def _shown(record: Record, attribute: str) -> str:
    try:
        return repr(getattr(record, attribute))
    except TimeRangeError as error:
        return error.value


def _time_property(stored: str, name: str, made: Callable[[int], datetime]) -> property:
    def read(self: Any) -> datetime | None:
        us = getattr(self, stored)
        try:
            return None if us is None else made(us)
        except TimeRangeError as error:
            raise TimeRangeError(error.value, column=name) from None

    return property(read)


def _far_property(stored: str, name: str) -> property:
    def read(self: Any) -> Any:
        value = getattr(self, stored)
        if isinstance(value, FarTime):
            raise TimeRangeError(value, column=name)
        return value

    return property(read)


@lru_cache(maxsize=256)
def record_class(
    schema: Schema, *, is_right: bool = False, far: frozenset[str] = frozenset()
) -> type[Record]:
    """Return the class of a schema's rows; timestamps are given as microseconds.

    Args:
        schema: The columns.
        is_right: Whether the rows are those of a right input.
        far: Columns other than timestamps in which there may be a ``FarTime``.
    """
    attributes: dict[str, str] = {}
    fields: list[tuple[str, Any]] = []
    namespace: dict[str, Any] = {"_rl_is_right": is_right}
    for position, f in enumerate(schema.fields):
        attribute = _attribute(f.name, position)
        attributes[f.name] = attribute
        if f.type.kind in _TIMES:
            stored, made_by = f"_us{position}", _TIMES[f.type.kind]
            namespace[attribute] = _time_property(stored, f.name, made_by)
            fields.append((stored, Any))
        elif f.name in far:
            stored = f"_far{position}"
            namespace[attribute] = _far_property(stored, f.name)
            fields.append((stored, Any))
        else:
            fields.append((attribute, Any))
    made = msgspec.defstruct(
        "Record", fields, bases=(Record,), namespace=namespace, gc=False
    )
    assert issubclass(made, Record)
    _ATTRIBUTES[made] = attributes
    return made


def column_attributes(schema: Schema) -> dict[str, str]:
    """Return by which attribute a record shows a column."""
    return _ATTRIBUTES[record_class(schema)]


def record_maker(schema: Schema) -> Callable[[Iterable[Any]], Record]:
    """Return what makes records of values as user code sees them."""
    made = record_class(schema)
    is_time = [f.type.kind in _TIMES for f in schema.fields]

    def make(values: Iterable[Any]) -> Record:
        pairs = zip(values, is_time, strict=True)
        return made(*(_stored_time(v) if is_one else v for v, is_one in pairs))

    return make


def _stored_time(value: datetime | None) -> int | None:
    if value is None:
        return None
    return micros(value if value.tzinfo else value.replace(tzinfo=UTC))
