"""Rows of files, and the text of each row that cannot be parsed.

Spark parses only the columns that are used, so what is bad would depend on the reader;
and of a line of JSON it reads the first value and ignores the rest. Here a row is bad
or not whichever columns are used: JSON and CSV are parsed whole from their lines, and
where Spark must cut rows itself, all columns are always read.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from riverlock.connectors.parsing.csv_text import CsvText, lines_below_header
from riverlock.connectors.parsing.json_text import BLANK, CORRUPT, JsonText
from riverlock.connectors.parsing.narrow_numbers import misfit, narrowed, wide
from riverlock.core.hidden_columns import SEQ
from riverlock.spark.structs import struct_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, DataFrameReader

    from riverlock.sources import Files

__all__ = ["CORRUPT", "FileRows"]

_LINE, _ROW, _ROWS = "__rl_line", "__rl_row", "__rl_rows"
_BYTE_ORDER_MARK: Final = "\N{BYTE ORDER MARK}"
_UTF_8: Final = ("utf-8", "utf8")
# What Java puts where bytes are no text.
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"


class FileRows:
    """Reads files of one source."""

    def __init__(self, source: Files) -> None:
        """Keep how to parse the files; a plan needs no more than that."""
        self._source = source
        self._options = {k.lower(): v for k, v in source.options.items()}

    @cached_property
    def _schema(self) -> StructType:
        assert self._source.schema is not None
        return struct_of(self._source.schema)

    @property
    def has_bad(self) -> bool:
        """Whether files of this kind can have rows that are bad."""
        return self._source.format != "parquet" or wide(self._schema) != self._schema

    @property
    def empty_schema(self) -> StructType:
        """The columns of no files."""
        more = [StructField(CORRUPT, StringType())] if self.has_bad else []
        return StructType([*self._schema.fields, *more])

    def read(
        self,
        reader: DataFrameReader,
        paths: list[str],
        with_position: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Return the rows of files, positions, and what is bad if ``has_bad``."""
        match self._source.format:
            case "text":
                return self._text(with_position(self._load(reader, "text", paths)))
            case "parquet":
                return self._parquet(with_position(self._parquet_of(reader, paths)))
            case "json" if self._is_utf_8 and self._is_on("multiline"):
                return self._documents(reader, paths, with_position)
            case "json" if self._is_utf_8:
                return self._lines(reader, paths, with_position)
            case "csv" if self._is_in_lines:
                return self._csv_lines(reader, paths, with_position)
            case _:
                return self._by_spark(reader, paths, with_position)

    @property
    def _is_utf_8(self) -> bool:
        named = self._options.get("encoding", self._options.get("charset", "utf-8"))
        return named.lower() in _UTF_8

    @property
    def _is_in_lines(self) -> bool:
        """Whether each line of CSV can be parsed by itself."""
        separator = CsvText(self._schema, self._options).separator
        has_checked_header = self._options.get("enforceschema") == "false"
        others = self._is_on("multiline") or has_checked_header or "\\" in separator
        return self._is_utf_8 and not others

    def _is_on(self, option: str) -> bool:
        return self._options.get(option) == "true"

    def _load(
        self, reader: DataFrameReader, kind: str, paths: list[str], **options: str
    ) -> DataFrame:
        reader = reader.format(kind).options(**self._source.options)
        return reader.options(**options).load(paths)

    def _text(self, frame: DataFrame) -> DataFrame:
        value = F.col("value")
        bad = F.when(~F.is_valid_utf8(value), F.make_valid_utf8(value))
        return frame.select("value", SEQ, bad.alias(CORRUPT))

    def _parquet_of(self, reader: DataFrameReader, paths: list[str]) -> DataFrame:
        return self._load(reader.schema(wide(self._schema)), "parquet", paths)

    def _parquet(self, frame: DataFrame) -> DataFrame:
        if not self.has_bad:
            return frame
        fields = [F.col(_quoted(f.name)) for f in self._schema]
        bad = F.when(misfit(self._schema, fields), F.to_json(F.struct(*fields)))
        return frame.select(*narrowed(self._schema, fields), SEQ, bad.alias(CORRUPT))

    def _lines(
        self,
        reader: DataFrameReader,
        paths: list[str],
        with_position: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Read JSON with a value in each line."""
        line, row = F.col(_LINE), F.col(_ROW)
        json = JsonText(self._schema, self._source.options)
        lines = self._load(reader.schema(f"{_LINE} string"), "text", paths)
        # To trim is slow, and few lines are blank.
        is_row = line.startswith("{") | (F.length(F.btrim(line, F.lit(BLANK))) > 0)
        # Positions, which are not computed twice, keep Spark from parsing twice.
        parsed = lines.where(is_row).withColumn(_ROW, json.parsed(line))
        frame = with_position(parsed)
        bad = F.when(json.is_bad(line, row), F.make_valid_utf8(line))
        return frame.select(*json.columns(row), SEQ, bad.alias(CORRUPT))

    def _documents(
        self,
        reader: DataFrameReader,
        paths: list[str],
        with_position: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Read JSON with a value, or an array of them, in each file."""
        whole = reader.schema(f"{_LINE} string")
        files = with_position(self._load(whole, "text", paths, wholetext="true"))
        line, row = F.col(_LINE), F.col(_ROW)
        json = JsonText(self._schema, self._source.options)
        text = F.ltrim(line, F.lit(f"{_BYTE_ORDER_MARK}{BLANK}"))
        rows = F.col(_ROWS)
        frame = files.withColumn(_ROW, json.document(text))
        frame = frame.select(SEQ, _LINE, json.rows(text, row).alias(_ROWS))
        frame = frame.select(
            SEQ,
            F.when(rows.isNull(), F.make_valid_utf8(line)).alias(CORRUPT),
            F.explode_outer(rows).alias(_ROW),
        )
        frame = frame.where(row.isNotNull() | F.col(CORRUPT).isNotNull())
        fields = [row[f.name] for f in self._schema]
        cut = F.when(misfit(self._schema, fields), F.to_json(row))
        bad = F.coalesce(F.col(CORRUPT), cut)
        return frame.select(*narrowed(self._schema, fields), SEQ, bad.alias(CORRUPT))

    def _csv_lines(
        self,
        reader: DataFrameReader,
        paths: list[str],
        with_position: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Read CSV with a row in each line."""
        line, row = F.col(_LINE), F.col(_ROW)
        csv = CsvText(self._schema, self._source.options)
        if self._is_on("header"):
            options = self._source.options
            lines = lines_below_header(reader, paths, _LINE, options)
        else:
            lines = self._load(reader.schema(f"{_LINE} string"), "text", paths)
        parsed = lines.where(csv.is_row(line)).withColumn(_ROW, csv.parsed(line))
        frame = with_position(parsed)
        bad = F.when(csv.is_bad(line, row), F.make_valid_utf8(line))
        return frame.select(*csv.columns(row), SEQ, bad.alias(CORRUPT))

    def _by_spark(
        self,
        reader: DataFrameReader,
        paths: list[str],
        with_position: Callable[[DataFrame], DataFrame],
    ) -> DataFrame:
        """Read what Spark must cut into rows itself: records over lines, encodings."""
        schema = StructType([*self._schema, StructField(CORRUPT, StringType())])
        options = {**self._permissive(), "columnPruning": "false"}
        frame = self._load(reader.schema(schema), self._source.format, paths, **options)
        fields = [F.col(_quoted(f.name)) for f in self._schema]
        bad = F.when(F.col(CORRUPT).isNotNull(), F.col(CORRUPT))
        # Never true; but who wants to know must read, and so parse, all columns.
        bad = bad.when(F.hash(*map(_hashable, self._schema)) % 2 > 5, F.lit(""))
        texts = [f for f in self._schema if isinstance(f.dataType, StringType)]
        if self._source.format == "csv" and texts and self._is_utf_8:
            is_damaged = F.lit(False)  # noqa: FBT003
            for field in texts:
                is_damaged |= F.col(_quoted(field.name)).contains(_REPLACED)
            bad = bad.when(is_damaged, F.to_csv(F.struct(*fields), self._dialect()))
        return with_position(frame).select(*fields, SEQ, bad.alias(CORRUPT))

    def _permissive(self) -> dict[str, str]:
        mode = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        return {**self._source.options, **mode}

    def _dialect(self) -> dict[str, str]:
        known = ("sep", "delimiter", "quote", "escape", "nullvalue")
        return {k: v for k, v in self._source.options.items() if k.lower() in known}


def _hashable(field: StructField) -> Column:
    """Return a column in a form that Spark can hash; it cannot hash maps."""
    column = F.col(_quoted(field.name))
    kind: DataType = field.dataType
    is_nested = isinstance(kind, StructType | ArrayType | MapType)
    return F.to_json(F.struct(column)) if is_nested else column


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
