"""Text that is one JSON object, and which text is none: lines of files, Kafka's values.

Spark reads the first value of a text and forgets the rest, cuts numbers to fit, and
lets times wrap around. All of that is bad here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from riverlock.spark.readers.narrow import misfit, narrowed, wide

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

__all__ = ["CORRUPT", "JsonText"]

# The text of a row that cannot be parsed; null of all others.
CORRUPT: Final = "__rl_corrupt"
# Around an object, to see that it is one value and nothing else.
_VALUES, _END = "__rl_values", "__rl_end"
# Seconds that fit a timestamp's microseconds; Spark multiplies without looking.
_MOST_SECONDS: Final = (2**63 - 1) // 1_000_000


class JsonText:
    """Parses text into the columns of a schema."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        """Take the columns, and options of Spark's reader."""
        self._schema, self._options = schema, dict(options)

    def parsed(self, text: Column) -> Column:
        """Return what Spark makes of a text; to be kept as a column of its own."""
        schema = StructType([*wide(self._schema), StructField(CORRUPT, StringType())])
        mode = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return F.from_json(text, schema, {**self._options, **mode})

    def columns(self, row: Column) -> list[Column]:
        """Return the columns of the schema from what was parsed."""
        return narrowed(self._schema, [row[f.name] for f in self._schema])

    def is_bad(self, text: Column, row: Column) -> Column:
        """Tell whether a text is anything but one object that fits the schema."""
        bare = F.btrim(text, F.lit(" \t\r\n"))
        good = (
            F.is_valid_utf8(text)
            & row[CORRUPT].isNull()
            & bare.startswith("{")
            & bare.endswith("}")
            & self._is_one_value(bare)
            & self._has_sane_times(text)
            & ~misfit(self._schema, [row[f.name] for f in self._schema])
        )
        return ~F.coalesce(good, F.lit(False))  # noqa: FBT003

    def _is_one_value(self, text: Column) -> Column:
        """Tell whether nothing follows the first value, which ends with a brace.

        That is plain if the first brace that closes is the last character.
        """
        if any(name.lower().startswith("allow") for name in self._options):
            # Only from_json knows what is allowed.
            around = F.concat(F.lit(f'{{"{_VALUES}":['), text, F.lit(f'],"{_END}":1}}'))
            schema = f"{_VALUES} array<string>, {_END} int"
            found = F.from_json(around, schema, self._options)
            exact = (F.size(found[_VALUES]) == 1) & (found[_END] == 1)
        else:
            more = F.concat(F.lit("["), text, F.lit(",0,0,0]"))
            exact = F.coalesce(F.json_array_length(more), F.lit(0)) == 4
        is_plain = F.instr(text, "}") == F.length(text)
        return F.when(is_plain, F.lit(True)).otherwise(exact)  # noqa: FBT003

    def _has_sane_times(self, text: Column) -> Column:
        """Tell whether numbers of seconds fit a timestamp."""
        sane = F.lit(True)  # noqa: FBT003
        for field in self._schema:
            if isinstance(field.dataType, TimestampType):
                name = field.name.replace("\\", "\\\\").replace("'", "\\'")
                seconds = F.get_json_object(text, f"$['{name}']")
                number = F.abs(seconds.try_cast("decimal(38, 0)"))
                sane = sane & F.coalesce(number <= _MOST_SECONDS, F.lit(True))  # noqa: FBT003
        # Fewer digits always fit, and more are rare.
        return F.when(text.rlike("[0-9]{13}"), sane).otherwise(F.lit(True))  # noqa: FBT003
