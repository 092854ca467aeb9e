"""Lines of CSV, parsed whole: Spark's own reader shows no line as it was.

From what it shows, bytes that are no text cannot be told from a real U+FFFD, nor an
open quote at the end of a line from a closed one; and a line of very many fields stops
it.
"""

from __future__ import annotations

from string import ascii_letters
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from riverlock.connectors.parsing.json_text import CORRUPT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, DataFrameReader

__all__ = ["CsvText", "lines_below_header"]

# A last field that an open quote would swallow.
_END: Final = "__rl_end"
# Spark stops where a line has more fields; a parser keeps some bytes for each.
_MOST_FIELDS: Final = 1 << 20
# Options are kept in lower case here, so that none is said twice.
_MODE: Final = {
    "mode": "PERMISSIVE",
    "columnnameofcorruptrecord": CORRUPT,
    "maxcolumns": str(_MOST_FIELDS),
}
# A character for each byte; of others than these, a line cut into bytes has none.
_LATIN: Final = "ISO-8859-1"
_NEVER: Final = {"sep": "\ue000", "quote": "\ue001", "escape": "\ue001"}


class CsvText:
    """Parses lines into the columns of a schema."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        """Take the columns, and options of Spark's reader."""
        self._schema = schema
        self._options = {k.lower(): v for k, v in options.items()}
        self.separator = self._options.get("sep", self._options.get("delimiter", ","))
        self._comment = self._options.get("comment")
        self._most_characters = int(self._options.pop("maxcharspercolumn", "-1"))
        special = "".join(self._options.values())
        self._mark = 8 * next(c for c in ascii_letters if c not in special)

    def is_row(self, line: Column) -> Column:
        """Tell whether a line is neither blank nor a comment."""
        blank = " \t\r".replace(self.separator, "")
        # To trim is slow, and few lines are blank.
        is_row = (F.substring(line, 1, 1) > " ") | (
            F.length(F.btrim(line, F.lit(blank))) > 0
        )
        return is_row & ~line.startswith(self._comment) if self._comment else is_row

    def parsed(self, line: Column) -> Column:
        """Return what Spark makes of a line; to be kept as a column of its own."""
        more = [StructField(name, StringType()) for name in (_END, CORRUPT)]
        schema = StructType([*self._schema, *more]).toDDL()
        longer = F.concat(line, F.lit(f"{self.separator}{self._mark}"))
        row = F.from_csv(longer, schema, {**self._options, **_MODE})
        return F.when(self._is_parsable(line), row)

    def columns(self, row: Column) -> list[Column]:
        """Return the columns of the schema from what was parsed."""
        return [row[f.name].alias(f.name) for f in self._schema]

    def is_bad(self, line: Column, row: Column) -> Column:
        """Tell whether a line has other fields than the schema."""
        good = F.is_valid_utf8(line) & row[CORRUPT].isNull() & (row[_END] == self._mark)
        bad = ~F.coalesce(good, F.lit(False))  # noqa: FBT003
        if self._most_characters < 0:
            return bad
        for field in self._schema:
            if isinstance(field.dataType, StringType):
                bad |= F.length(row[field.name]) > self._most_characters
        return bad

    def _is_parsable(self, line: Column) -> Column:
        """Tell whether a line has few enough separators; quoted ones count too."""
        size, most = F.octet_length(line), _MOST_FIELDS - 2
        without = F.octet_length(F.replace(line, F.lit(self.separator), F.lit("")))
        return (size < most) | (size - without < most * len(self.separator.encode()))


def lines_below_header(
    reader: DataFrameReader, paths: list[str], name: str, options: Mapping[str, str]
) -> DataFrame:
    """Return lines but the first of each file, which only Spark's CSV can leave out.

    It leaves out lines of nothing but blanks and control characters, too.
    """
    kept = ("header", "comment", "linesep")
    found = {k: v for k, v in options.items() if k.lower() in kept}
    csv = reader.schema(f"{name} string").format("csv")
    lines = csv.options(**found, **_NEVER, encoding=_LATIN).load(paths)
    return lines.withColumn(name, F.encode(name, _LATIN).cast("string"))
