"""Values of a column as offsets store them: JSON that says its type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

__all__ = ["decoded", "encoded"]


def encoded(value: Any) -> Any:
    """Return a value as JSON.

    >>> encoded(Decimal("1.50")), encoded(date(2026, 1, 2)), encoded(7), encoded("a")
    ({'decimal': '1.50'}, {'date': '2026-01-02'}, 7, 'a')

    Raises:
        TypeError: Values of this type do not tell how far a table was read.
    """
    match value:
        case bool() | float() | bytes():
            raise TypeError(type(value).__name__)
        case None | int() | str():
            return value
        case Decimal():
            return {"decimal": str(value)}
        case UUID():
            return str(value)
        case datetime() if value.tzinfo is not None:
            return {"timestamp": value.astimezone(UTC).isoformat()}
        case datetime():
            return {"timestamp_ntz": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case _:
            raise TypeError(type(value).__name__)


def decoded(value: Any) -> Any:
    """Return a value as the database's client takes it.

    >>> decoded({"decimal": "1.50"}), decoded(7)
    (Decimal('1.50'), 7)
    """
    match value:
        case {"decimal": text}:
            return Decimal(text)
        case {"timestamp": text} | {"timestamp_ntz": text}:
            return datetime.fromisoformat(text)
        case {"date": text}:
            return date.fromisoformat(text)
        case _:
            return value
