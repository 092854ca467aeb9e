"""Text that is one JSON object, and which text is none: lines of files, Kafka's values.

Spark reads the first value of a text and forgets the rest, cuts numbers to fit, and
lets times wrap around. All of that is bad here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from riverlock.connectors.parsing.narrow_numbers import misfit, narrowed, wide
from riverlock.connectors.parsing.wrapped_times import has_wrapped, times_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

__all__ = ["BLANK", "CORRUPT", "JsonText"]

# The text of a row that cannot be parsed; null of all others.
CORRUPT: Final = "__rl_corrupt"
# White space of JSON.
BLANK: Final = " \t\r\n"
# Around what is parsed, to see in one pass that it is one value and nothing else. The
# line break ends a comment, if those are allowed.
_VALUES, _END = "__rl_values", "__rl_end"
_BEFORE, _AFTER = f'{{"{_VALUES}":', f'\n,"{_END}":1}}'
_ENDS_LIST: Final = r"\]\s*,"
# Escapes that are whole, and what is half a character where those are taken out.
_HALF: Final = r"\\u[dD][89a-fA-F]"
_WHOLE: Final = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
# A day as a bare number in quotes is more likely 20260101 than one of the year 57440.
_STRICT: Final = {"enableDateTimeParsingFallback": "false"}


class JsonText:
    """Parses text into the columns of a schema."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        """Take the columns, and options of Spark's reader."""
        self._schema, self._options = schema, {**_STRICT, **options}

    def parsed(self, text: Column) -> Column:
        """Return what Spark makes of a text; to be kept as a column of its own."""
        return self._from_json(_listed(text), ArrayType(wide(self._schema)))

    def columns(self, row: Column) -> list[Column]:
        """Return the columns of the schema from what was parsed."""
        return narrowed(self._schema, self._fields(row))

    def is_bad(self, text: Column, row: Column) -> Column:
        """Tell whether a text is anything but one object that fits the schema."""
        good = (
            self._is_whole(text, row)
            & (F.size(row[_VALUES]) == 1)
            & _first(row).isNotNull()
            & ~self._wraps(self._schema, text, _listed(text), _first(row))
            & ~misfit(self._schema, self._fields(row))
        )
        return ~F.coalesce(good, F.lit(False))  # noqa: FBT003

    def document(self, text: Column) -> Column:
        """Return what Spark makes of an object, or of a list of them."""
        return self._from_json(_as_list(text), ArrayType(wide(self._schema)))

    def rows(self, text: Column, row: Column) -> Column:
        """Return the objects of a document; nothing if it is bad."""
        values, kind = row[_VALUES], ArrayType(self._schema)
        good = (
            self._is_whole(text, row)
            & (_is_list(text) | (F.size(values) <= 1))
            & F.forall(values, lambda value: value.isNotNull())
            & ~self._wraps(kind, text, _as_list(text), values)
        )
        return F.when(good, values)

    def _from_json(self, text: Column, values: ArrayType) -> Column:
        schema = StructType(
            [
                StructField(_VALUES, values),
                StructField(_END, IntegerType()),
                StructField(CORRUPT, StringType()),
            ]
        )
        mode = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return F.from_json(text, schema, {**self._options, **mode})

    def _fields(self, row: Column) -> list[Column]:
        return [_first(row)[f.name] for f in self._schema]

    def _is_whole(self, text: Column, row: Column) -> Column:
        """Tell whether a text was read to its end."""
        read = F.is_valid_utf8(text) & row[CORRUPT].isNull() & (row[_END] == 1)
        return read & ~_has_half_characters(text) & self._is_one_value(text)

    def _is_one_value(self, text: Column) -> Column:
        """Tell whether a text does not end what is put around it by itself."""
        more = F.concat(F.lit("["), text, F.lit("\n,0]"))
        values = F.from_json(more, ArrayType(StringType()), self._options)
        is_one = F.coalesce(F.size(values), F.lit(0)) == 2
        return F.when(text.rlike(_ENDS_LIST), is_one).otherwise(F.lit(True))  # noqa: FBT003

    def _wraps(
        self, kind: DataType, text: Column, around: Column, value: Column
    ) -> Column:
        """Tell whether a time is a number of seconds that no timestamp can hold."""
        times = times_of(kind)
        if times is None:
            return F.lit(False)  # noqa: FBT003
        is_one = isinstance(kind, StructType)
        found = self._from_json(around, ArrayType(times) if is_one else times)
        wrapped = has_wrapped(kind, value, _first(found) if is_one else found[_VALUES])
        # Fewer digits always fit, and more are rare.
        return F.when(text.rlike("[0-9]{13}"), wrapped).otherwise(F.lit(False))  # noqa: FBT003


def _has_half_characters(text: Column) -> Column:
    """Tell whether an escape is one surrogate alone, for which Java writes ``?``."""
    rest = F.regexp_replace(text, F.lit(_WHOLE), F.lit("_"))
    may_have = text.contains(r"\ud") | text.contains(r"\uD")
    return F.when(may_have, rest.rlike(_HALF)).otherwise(F.lit(False))  # noqa: FBT003


def _first(row: Column) -> Column:
    return F.get(row[_VALUES], F.lit(0))


def _is_list(text: Column) -> Column:
    return text.startswith("[")


def _listed(text: Column) -> Column:
    return F.concat(F.lit(f"{_BEFORE}["), text, F.lit(f"\n]{_AFTER}"))


def _as_list(text: Column) -> Column:
    is_list = _is_list(text)
    begin = F.when(is_list, F.lit(_BEFORE)).otherwise(F.lit(f"{_BEFORE}["))
    end = F.when(is_list, F.lit(_AFTER)).otherwise(F.lit(f"\n]{_AFTER}"))
    return F.concat(begin, text, end)
