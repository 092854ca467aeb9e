"""Files that Python reads without Spark: which rows they have, and which are bad."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pyarrow as pa

from riverlock.connectors.base.splits import without_spark
from riverlock.connectors.files.reading.parquet_rows import parquet_rows
from riverlock.connectors.parsing.json_decoding import JsonDecoder, check_json
from riverlock.core.errors import SourceError

if TYPE_CHECKING:
    from riverlock.core.types import Schema
    from riverlock.sources import Files

__all__ = ["FileSplit", "check_files"]

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_JSON_BLANK: Final = b" \t\r\n"
# Of Java's URIs: what is written as it is in a path.
_AS_IS: Final = "/!$&'()*+,;=:@-._~"


def check_files(source: Files, uid: str) -> None:
    """Refuse files that only Spark reads.

    Raises:
        InvalidFlowError: They are such files.
    """
    what = f"source {uid!r}"
    if source.format == "csv":
        raise without_spark(what, "files(format='csv')")
    for name in source.options:
        raise without_spark(what, f"option {name}= of files(format={source.format!r})")
    if source.format == "json":
        assert source.schema is not None
        check_json(source.schema, what)


@dataclass(frozen=True, kw_only=True)
class FileSplit:
    """A file.

    Attributes:
        path: Where it is.
        format: What it is; ``check_files`` has looked at it.
        columns: Those of the stream.
        bad_columns: Those of bad rows, which are the file and the text.
        fails: Whether a bad row ends the flow.
        uid: Of the source, for errors.
    """

    path: str
    format: str
    columns: Schema
    bad_columns: Schema
    fails: bool
    uid: str

    def table(self) -> pa.Table:
        """Read the rows of the stream.

        Raises:
            SourceError: It is gone, is no such file, or has a bad row and must not.
        """
        return self.parted()[0]

    def parted(self) -> tuple[pa.Table, pa.Table]:
        """Read the rows of the stream, and the bad ones.

        Raises:
            SourceError: It is gone, is no such file, or has a bad row and must not.
        """
        try:
            rows, bad = self._read()
        except FileNotFoundError as error:
            raise SourceError(
                self.uid,
                what=f"file {self.path} is gone before its epoch was committed",
                hint="put it back; the epoch is read again then",
            ) from error
        if bad and self.fails:
            raise SourceError(
                self.uid,
                what=f"{self.path} has a row that cannot be parsed: {bad[0]}",
                hint="bad_rows='report' keeps such rows out of the stream",
            )
        texts = pa.array(bad, pa.string())
        named = pa.repeat(pa.scalar(self.address), len(bad))
        return rows, pa.table([named, texts], schema=self.bad_columns.to_arrow())

    def _read(self) -> tuple[pa.Table, list[str]]:
        match self.format:
            case "parquet":
                return parquet_rows(self.path, self.columns, self.uid)
            case "text":
                return self._text()
            case _:
                return self._json()

    def _text(self) -> tuple[pa.Table, list[str]]:
        good: list[str] = []
        bad: list[str] = []
        for line in self._lines():
            try:
                good.append(line.decode())
            except UnicodeDecodeError:
                bad.append(mended(line))
        arrow = self.columns.to_arrow()
        return pa.table([pa.array(good, pa.string())], schema=arrow), bad

    def _json(self) -> tuple[pa.Table, list[str]]:
        lines = [line for line in self._lines() if line.strip(_JSON_BLANK)]
        found, wrong = JsonDecoder(self.columns).decoded(lines)
        rows = pa.Table.from_arrays(found.flatten(), schema=self.columns.to_arrow())
        places = [place for place, why in enumerate(wrong) if why is not None]
        if not places:
            return rows, []
        is_good = pa.array([why is None for why in wrong], pa.bool_())
        return rows.filter(is_good), [mended(lines[place]) for place in places]

    def _lines(self) -> list[bytes]:
        """Return the lines, as Hadoop cuts them."""
        body = Path(self.path).read_bytes().removeprefix(_BYTE_ORDER_MARK)
        lines = _LINE_END.split(body)
        return lines if lines[-1] else lines[:-1]

    @property
    def address(self) -> str:
        """The file as Spark names it."""
        return f"file://{quote(self.path, safe=_AS_IS)}"


def mended(line: bytes) -> str:
    """Return bytes as text, with a mark for each that is none, as Spark does it."""
    return line.decode(errors="replace")
